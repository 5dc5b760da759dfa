#include "medfusion/ddp/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "medfusion/distributed/setup.h"
#include "tests/ddp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

at::Tensor Wave(const std::vector<int64_t>& shape, double phase) {
  int64_t numel = 1;
  for (int64_t s : shape) numel *= s;
  return ((torch::arange(numel, at::kDouble) * 1.7 + phase).sin() * 3 + 5).view(shape);
}

// LibTorch's module on the joined batch and, inside the scope, on each rank's rows.
template <typename Norm>
void ExpectLikeJoined(std::vector<int64_t> shape, const std::vector<int64_t>& bounds,
                      double momentum_or_none = 0.1) {
  const int world = static_cast<int>(bounds.size()) - 1;
  shape[0] = bounds.back();
  const auto make = [&] {
    auto options = torch::nn::BatchNormOptions(shape[1]);
    if (momentum_or_none < 0) {
      options.momentum(std::nullopt);
    } else {
      options.momentum(momentum_or_none);
    }
    Norm norm(options);
    norm->to(at::kDouble);
    torch::NoGradGuard no_grad;
    norm->weight.copy_(Wave({shape[1]}, 1));
    norm->bias.copy_(Wave({shape[1]}, 2));
    return norm;
  };
  const at::Tensor all = Wave(shape, 0);
  const at::Tensor output_gradient = Wave(shape, 4);
  Norm joined = make();
  const at::Tensor joined_input = all.clone().requires_grad_();
  const at::Tensor joined_output = joined->forward(joined_input);
  joined->forward(joined_input.detach() + 1);
  joined_output.backward(output_gradient);

  RunRanks(world, [&](ProcessGroup& group) {
    const int64_t begin = bounds[group.rank()], end = bounds[group.rank() + 1];
    Norm norm = make();
    const at::Tensor input = all.slice(0, begin, end).clone().requires_grad_();
    at::Tensor output;
    {
      const SyncBatchNormScope scope(DefaultGroup());
      output = norm->forward(input);
      norm->forward(input.detach() + 1);
    }
    EXPECT_TRUE(Close(output, joined_output.slice(0, begin, end)));
    output.backward(output_gradient.slice(0, begin, end));
    EXPECT_TRUE(Close(input.grad(), joined_input.grad().slice(0, begin, end)));
    at::Tensor weight = norm->weight.grad().clone(), bias = norm->bias.grad().clone();
    group.AllReduce(weight)->Wait();
    group.AllReduce(bias)->Wait();
    EXPECT_TRUE(Close(weight, joined->weight.grad()));
    EXPECT_TRUE(Close(bias, joined->bias.grad()));
    EXPECT_TRUE(Close(norm->running_mean, joined->running_mean));
    EXPECT_TRUE(Close(norm->running_var, joined->running_var));
    EXPECT_TRUE(norm->num_batches_tracked.equal(joined->num_batches_tracked));
  });
}

TEST(SyncBatchNormTest, OneDimension) {
  ExpectLikeJoined<torch::nn::BatchNorm1d>({0, 3}, {0, 4, 8});
  ExpectLikeJoined<torch::nn::BatchNorm1d>({0, 3, 5}, {0, 4, 8, 12});
}

TEST(SyncBatchNormTest, TwoDimensions) {
  ExpectLikeJoined<torch::nn::BatchNorm2d>({0, 3, 5, 4}, {0, 2, 4});
}

TEST(SyncBatchNormTest, ThreeDimensions) {
  ExpectLikeJoined<torch::nn::BatchNorm3d>({0, 2, 3, 4, 2}, {0, 2, 4});
}

TEST(SyncBatchNormTest, UnevenBatchesAreWeightedByTheirSize) {
  ExpectLikeJoined<torch::nn::BatchNorm2d>({0, 3, 2, 2}, {0, 1, 6, 8, 9});
}

TEST(SyncBatchNormTest, CumulativeAverageOfRunningStatistics) {
  ExpectLikeJoined<torch::nn::BatchNorm2d>({0, 3, 2, 2}, {0, 1, 3}, /*momentum_or_none=*/-1);
}

TEST(SyncBatchNormTest, ARankMayHaveNoSamples) {
  const at::Tensor all = Wave({4, 3}, 0);
  RunRanks(2, [&](ProcessGroup& group) {
    const at::Tensor input =
        (group.rank() == 0 ? all : all.slice(0, 0, 0)).clone().requires_grad_();
    const at::Tensor output = SyncBatchNorm(DefaultGroup(), input, {}, {}, {}, {}, 0.1, 1e-5);
    EXPECT_EQ(output.sizes(), input.sizes());
    output.square().sum().backward();
    EXPECT_EQ(input.grad().sizes(), input.sizes());
    if (group.rank() == 0) {
      EXPECT_TRUE(Close(output, torch::batch_norm(all, {}, {}, {}, {}, true, 0.1, 1e-5, false)));
    }
  });
}

TEST(SyncBatchNormTest, EvaluationAndInstanceNormStayLocal) {
  RunRanks(2, [](ProcessGroup& group) {
    const at::Tensor x = Wave({2, 3, 4, 4}, group.rank());
    torch::nn::BatchNorm2d norm(3);
    norm->to(at::kDouble);
    norm->eval();
    torch::nn::InstanceNorm2d instance(3);
    const at::Tensor evaluated = norm->forward(x), instances = instance->forward(x);
    const SyncBatchNormScope scope(DefaultGroup());
    const int64_t before = group.traffic().collectives;
    EXPECT_TRUE(at::equal(norm->forward(x), evaluated));
    EXPECT_TRUE(at::equal(instance->forward(x), instances));
    EXPECT_EQ(group.traffic().collectives, before);
  });
}

TEST(SyncBatchNormTest, TheScopeEndsWithItself) {
  RunRanks(2, [](ProcessGroup& group) {
    const at::Tensor x = Wave({4, 3}, group.rank());
    const auto run = [&] { return torch::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false); };
    const at::Tensor local = run();
    {
      const SyncBatchNormScope outer(DefaultGroup());
      {
        const SyncBatchNormScope inner(nullptr);
        EXPECT_TRUE(at::equal(run(), local));
      }
      EXPECT_FALSE(Close(run(), local));
    }
    EXPECT_TRUE(at::equal(run(), local));
  });
}

TEST(SyncBatchNormTest, Float32ComesOutAsFloat32) {
  RunRanks(2, [](ProcessGroup& group) {
    const at::Tensor x = Wave({4, 3}, group.rank()).to(at::kFloat).requires_grad_();
    const at::Tensor weight = torch::ones({3}, torch::requires_grad());
    const at::Tensor y = SyncBatchNorm(DefaultGroup(), x, weight, {}, {}, {}, 0.1, 1e-5);
    EXPECT_EQ(y.scalar_type(), at::kFloat);
    y.square().sum().backward();
    EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  });
}

TEST(SyncBatchNormTest, OneValuePerChannelInAllIsAnErrorOnAllRanks) {
  const auto errors = RunRanksThatMayFail(2, [](ProcessGroup& group) {
    SyncBatchNorm(DefaultGroup(), torch::ones({group.rank(), 3}), {}, {}, {}, {}, 0.1, 1e-5);
  });
  EXPECT_THAT(errors, ::testing::Each(::testing::HasSubstr("1 values per channel")));
}

}  // namespace
}  // namespace medfusion::testing
