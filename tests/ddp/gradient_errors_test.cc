// Steps that go wrong: every rank hears of it, nobody hangs, and training can go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "medfusion/ddp/ddp_wrapper.h"
#include "tests/ddp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ErrorOf(const std::function<void()>& run) {
  try {
    run();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(GradientErrorsTest, AParameterWithoutGradientIsNamedAtTheNextForwardOfAllRanks) {
  std::vector<std::string> errors(2);
  RunRanks(2, [&](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    DDPWrapper model(net);
    model->forward(InputOf(0), true, false).sum().backward();
    errors[group.rank()] = ErrorOf([&] { model->forward(InputOf(0), true, true); });
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("no gradient for 'right.weight', 'right.bias'"),
                                 HasSubstr("find_unused_parameters"), Not(HasSubstr("left")))));
}

TEST(GradientErrorsTest, AParameterWithoutGradientOnOneRankIsNamedOnAllAndTrainingCanGoOn) {
  std::vector<std::string> errors(3);
  RunRanks(3, [&](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    FillParameters(*net);
    DDPOptions options;
    options.buckets = {1, 1};
    DDPWrapper model(net, options);
    errors[group.rank()] = ErrorOf([&] {
      // Ranks 0 and 2 wait for rank 1 inside this backward, until its next forward sets them free.
      model->forward(InputOf(0), true, group.rank() != 1).sum().backward();
      if (group.rank() == 1) model->forward(InputOf(0), true, true);
    });
    model->zero_grad();
    model->forward(InputOf(group.rank()), true, true).sum().backward();
    const at::Tensor mean = (InputOf(0) + InputOf(1) + InputOf(2)).sum(0) / 3;
    EXPECT_TRUE(Close(net->right->weight.grad()[0], mean));
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("rank 1: no gradient for 'right.weight', 'right.bias'"))));
}

TEST(GradientErrorsTest, ABackwardThatFailsOnEveryRankCostsOneStep) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = DoubleModule<Fused>();
    FillParameters(*net);
    DDPOptions options;
    options.buckets = {1, 1};
    DDPWrapper model(net, options);
    const at::Tensor loss = model->forward(InputOf(0), /*blow=*/true).sum();
    EXPECT_THAT(ErrorOf([&] { loss.backward(); }), HasSubstr("the fuse blew"));
    model->zero_grad();
    model->forward(InputOf(group.rank()), /*blow=*/false).sum().backward();
    const at::Tensor mean = (InputOf(0) + InputOf(1)).sum(0) / 2;
    EXPECT_TRUE(Close(net->first->weight.grad()[0], mean * net->last->weight[0][0]));
  });
}

TEST(GradientErrorsTest, ABackwardThatFailsOnOneRankIsReportedOnAllAndTrainingCanGoOn) {
  std::vector<std::string> errors(3);
  RunRanks(3, [&](ProcessGroup& group) {
    auto net = DoubleModule<Fused>();
    FillParameters(*net);
    DDPOptions options;
    options.buckets = {1, 1};
    DDPWrapper model(net, options);
    const bool blow = group.rank() == 2;
    const at::Tensor loss = model->forward(InputOf(0), blow).sum();
    errors[group.rank()] = ErrorOf([&] {
      if (blow) {
        EXPECT_THAT(ErrorOf([&] { loss.backward(); }), HasSubstr("the fuse blew"));
        model->forward(InputOf(0), false);
      } else {
        loss.backward();
      }
    });
    model->zero_grad();
    model->forward(InputOf(0), /*blow=*/false).sum().backward();
    EXPECT_TRUE(Close(net->first->weight.grad()[0], InputOf(0).sum(0) * net->last->weight[0][0]));
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 2: backward failed")));
}

TEST(GradientErrorsTest, ARankThatNeverGoesBackwardEndsTheOthersAtTheTimeout) {
  GroupOptions options;
  options.timeout = std::chrono::milliseconds(500);
  const auto errors = RunRanksThatMayFail(
      2,
      [](ProcessGroup& group) {
        DDPWrapper model(DoubleModule<TwoBranches>());
        const at::Tensor loss = model->forward(InputOf(0), true, true).sum();
        if (group.rank() == 0) {
          EXPECT_THAT(ErrorOf([&] { loss.backward(); }), HasSubstr("AllReduce"));
        } else {
          // Stays there until rank 0 has given up, which only its own end would hasten.
          EXPECT_NE(ErrorOf([&] { group.Broadcast(torch::zeros({3}), 0)->Wait(); }), "");
        }
      },
      options);
  EXPECT_THAT(errors, Each(""));
}

TEST(GradientErrorsTest, SparseGradientsAndGraphsOfGradientsAreRefusedByName) {
  RunRanks(2, [](ProcessGroup&) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 2).sparse(true));
    DDPWrapper model(table);
    const at::Tensor loss = model->forward(torch::tensor({1, 2})).sum();
    EXPECT_THAT(ErrorOf([&] { loss.backward(); }),
                AllOf(HasSubstr("'weight' is sparse"), HasSubstr("sparse(false)")));

    DDPWrapper linear(torch::nn::Linear(3, 1));
    const at::Tensor smooth = linear->forward(torch::ones({1, 3})).square().sum();
    EXPECT_THAT(ErrorOf([&] { smooth.backward({}, true, /*create_graph=*/true); }),
                HasSubstr("create_graph=true"));
  });
}

TEST(GradientErrorsTest, AParameterReachedTwiceIsNamed) {
  RunRanks(2, [](ProcessGroup&) {
    auto net = DoubleModule<TwoBranches>();
    DDPWrapper model(net);
    const at::Tensor left = model->forward(InputOf(0), true, false).sum();
    left.backward({}, /*retain_graph=*/true);
    EXPECT_THAT(ErrorOf([&] { left.backward(); }),
                AllOf(HasSubstr("'left."), HasSubstr("twice"), HasSubstr("no_sync")));
  });
}

}  // namespace
}  // namespace medfusion::testing
