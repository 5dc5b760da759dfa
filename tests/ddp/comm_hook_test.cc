#include "medfusion/ddp/comm_hook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "medfusion/ddp/ddp_wrapper.h"
#include "tests/ddp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Trains one step with the hook on 2 ranks and gives rank 0's gradient of left.weight to `check`.
void WithHook(const CommHook& hook, const std::function<void(const at::Tensor& gradient)>& check,
              const BucketLimits& limits = {}) {
  RunRanks(2, [&](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    DDPOptions options;
    options.comm_hook = hook;
    options.buckets = limits;
    DDPWrapper model(net, options);
    for (int step = 0; step < 2; ++step) {
      model->zero_grad();
      model->forward(InputOf(group.rank()), true, true).sum().backward();
      check(net->left->weight.grad()[0]);
    }
  });
}

at::Tensor Sum(int rank) { return InputOf(rank).sum(0); }

TEST(CommHookTest, HalfPrecisionHooksDivideThenSumInThatPrecision) {
  WithHook(Float16CompressHook, [](const at::Tensor& gradient) {
    EXPECT_TRUE(at::equal(
        gradient, (Sum(0).to(at::kHalf).div(2) + Sum(1).to(at::kHalf).div(2)).to(at::kDouble)));
    EXPECT_FALSE(Close(gradient, (Sum(0) + Sum(1)) / 2));  // it did compress
  });
  WithHook(BFloat16CompressHook, [](const at::Tensor& gradient) {
    EXPECT_TRUE(at::equal(
        gradient,
        (Sum(0).to(at::kBFloat16).div(2) + Sum(1).to(at::kBFloat16).div(2)).to(at::kDouble)));
  });
}

TEST(CommHookTest, CompressionHalvesTheTraffic) {
  const auto bytes_per_step = [](const CommHook& hook) {
    int64_t bytes = 0;
    RunRanks(2, [&](ProcessGroup& group) {
      torch::nn::Linear net(torch::nn::LinearOptions(256, 64).bias(false));
      DDPOptions options;
      options.comm_hook = hook;
      DDPWrapper model(net, options);
      model->forward(torch::ones({1, 256})).sum().backward();
      const int64_t before = group.traffic().bytes_sent;
      model->forward(torch::ones({1, 256})).sum().backward();
      if (group.rank() == 0) bytes = group.traffic().bytes_sent - before;
    });
    return bytes;
  };
  const int64_t plain = bytes_per_step(nullptr);
  const int64_t half = bytes_per_step(Float16CompressHook);
  EXPECT_LT(half, plain * 0.51);
  EXPECT_GT(half, plain * 0.49);
}

TEST(CommHookTest, TheUsersHookSeesNamedGradientsAndItsResultIsFinal) {
  const auto hook = [](ProcessGroup& group, GradBucket& bucket) {
    EXPECT_EQ(bucket.gradients.size(), bucket.names.size());
    EXPECT_EQ(bucket.divisor, 2);
    for (size_t i = 0; i < bucket.names.size(); ++i) {
      EXPECT_EQ(bucket.gradients[i].dim(), bucket.names[i].ends_with("weight") ? 2 : 1);
    }
    const at::Tensor buffer = bucket.buffer;
    return ThenFinish(group.AllReduce(buffer), [buffer] { buffer.fill_(42); });
  };
  WithHook(hook,
           [](const at::Tensor& gradient) { EXPECT_TRUE(gradient.eq(42).all().item<bool>()); });
}

TEST(CommHookTest, ABlockingHookMayReturnNull) {
  const auto hook = [](ProcessGroup& group, GradBucket& bucket) -> WorkPtr {
    group.AllReduce(bucket.buffer, ReduceOp::kAverage)->Wait();
    return nullptr;
  };
  WithHook(hook,
           [](const at::Tensor& gradient) { EXPECT_TRUE(Close(gradient, (Sum(0) + Sum(1)) / 2)); },
           {1, 1});
}

TEST(CommHookTest, TheLastBucketIsMarked) {
  std::vector<bool> last;
  RunRanks(1, [&](ProcessGroup&) {
    DDPOptions options;
    options.buckets = {1, 1};
    options.comm_hook = [&](ProcessGroup& group, GradBucket& bucket) {
      last.push_back(bucket.is_last);
      return group.AllReduce(bucket.buffer);
    };
    DDPWrapper model(torch::nn::Linear(3, 2), options);
    model->forward(torch::ones({1, 3})).sum().backward();
  });
  EXPECT_THAT(last, ElementsAre(false, true));
}

TEST(CommHookTest, WorksWithUnusedParameters) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    DDPOptions options;
    options.comm_hook = BFloat16CompressHook;
    options.find_unused_parameters = true;
    DDPWrapper model(net, options);
    model->forward(InputOf(0), group.rank() == 1, true).sum().backward();
    EXPECT_TRUE(
        at::equal(net->left->weight.grad()[0], Sum(0).to(at::kBFloat16).div(2).to(at::kDouble)));
  });
}

TEST(CommHookTest, AMissingGradientIsStillNamedOnAllRanks) {
  const auto errors = RunRanksThatMayFail(2, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    DDPOptions options;
    options.comm_hook = Float16CompressHook;
    DDPWrapper model(net, options);
    model->forward(InputOf(0), true, group.rank() == 0).sum().backward();
    model->forward(InputOf(0), true, true);
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1: no gradient for 'right.weight', 'right.bias'")));
}

}  // namespace
}  // namespace medfusion::testing
