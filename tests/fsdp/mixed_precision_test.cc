// FSDP that computes in another dtype than its optimizer's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "medfusion/fsdp/fsdp.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 5;
constexpr int kBatch = 12;

class Net : public torch::nn::Module {
 public:
  Net() {
    first = register_module("first", torch::nn::Linear(6, 16));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
    last = register_module("last", torch::nn::Linear(16, 1));
    auto generator = at::detail::createCPUGenerator(5);
    const torch::NoGradGuard no_grad;
    for (at::Tensor& p : parameters()) p.copy_(torch::randn(p.sizes(), generator) * 0.4);
  }
  at::Tensor forward(const at::Tensor& x) {
    seen = x.scalar_type();
    return last->forward(torch::tanh(norm->forward(first->forward(x))));
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  at::ScalarType seen = at::kFloat;
};

at::Tensor Inputs(int step) {
  auto generator = at::detail::createCPUGenerator(100 + step);
  return torch::randn({kBatch, 6}, generator);
}
at::Tensor Targets(const at::Tensor& x) { return x.sum(1, true).sin(); }

FSDPOptions In(at::ScalarType dtype, ShardingStrategy strategy = ShardingStrategy::FULL_SHARD) {
  FSDPOptions options;
  options.sharding_strategy = strategy;
  options.min_num_params = 0;
  options.mixed_precision.param_dtype = dtype;
  return options;
}

// By hand: a low-precision copy computes, float32 masters are updated.
std::vector<at::Tensor> TrainByHand(at::ScalarType dtype) {
  Net masters;
  for (int step = 0; step < kSteps; ++step) {
    Net copy;
    copy.to(dtype);
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < masters.parameters().size(); ++i) {
      copy.parameters()[i].copy_(masters.parameters()[i]);
    }
    {
      const torch::AutoGradMode with_grad(true);
      const at::Tensor x = Inputs(step);
      (copy.forward(x.to(dtype)).to(at::kFloat) - Targets(x)).square().mean().backward();
    }
    for (size_t i = 0; i < masters.parameters().size(); ++i) {
      masters.parameters()[i].sub_(copy.parameters()[i].grad().to(at::kFloat), 0.05);
    }
  }
  return masters.parameters();
}

void ExpectLike(const std::vector<at::Tensor>& expected, ProcessGroup& group, FSDPOptions options,
                double tolerance) {
  auto net = std::make_shared<Net>();
  FSDPWrapper model(net, std::move(options));
  torch::optim::SGD optimizer(model->parameters(), 0.05);
  const int rows = kBatch / group.size();
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor x = Inputs(step).slice(0, group.rank() * rows, (group.rank() + 1) * rows);
    (model->forward(x).to(at::kFloat) - Targets(x)).square().mean().backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  const FullParameters scope(model, /*writeback=*/false);
  for (size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor actual = net->parameters()[i];
    EXPECT_EQ(actual.scalar_type(), at::kFloat);
    EXPECT_LE((actual - expected[i]).abs().max().item<float>(), tolerance)
        << net->named_parameters().keys()[i];
  }
}

class MixedPrecisionTest : public ::testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, MixedPrecisionTest, ::testing::Values(at::kBFloat16, at::kHalf));

TEST_P(MixedPrecisionTest, OneRankEqualsTrainingByHandBitForBit) {
  const auto expected = TrainByHand(GetParam());
  for (const auto strategy : {ShardingStrategy::FULL_SHARD, ShardingStrategy::NO_SHARD}) {
    RunRanks(
        1, [&](ProcessGroup& group) { ExpectLike(expected, group, In(GetParam(), strategy), 0); });
  }
}

// Each rank's gradient is rounded to the low precision before the sum: 8 bits for bfloat16, 11 for
// float16.
TEST_P(MixedPrecisionTest, SeveralRanksEqualOneWithinTheRoundingOfTheirGradients) {
  const auto expected = TrainByHand(GetParam());
  const double tolerance = GetParam() == at::kHalf ? 1e-3 : 1e-2;
  for (const int world : {2, 3, 4}) {
    for (const auto strategy : {ShardingStrategy::FULL_SHARD, ShardingStrategy::SHARD_GRAD_OP,
                                ShardingStrategy::NO_SHARD}) {
      RunRanks(world, [&](ProcessGroup& group) {
        ExpectLike(expected, group, In(GetParam(), strategy), tolerance);
      });
    }
  }
}

class Scale : public torch::nn::Module {
 public:
  Scale() { weight = register_parameter("weight", torch::ones({3})); }
  at::Tensor forward(const at::Tensor& x) { return (weight * x).sum(); }
  at::Tensor weight;
};

TEST(MixedPrecisionTest, GradientsOfTheRanksAreAddedInFloat32UnlessToldOtherwise) {
  RunRanks(2, [](ProcessGroup& group) {
    for (const bool low : {false, true}) {
      FSDPOptions options = In(at::kBFloat16);
      if (low) options.mixed_precision.reduce_dtype = at::kBFloat16;
      FSDPWrapper model(std::make_shared<Scale>(), options);
      // 256 + 1 needs nine bits.
      model->forward(at::full({3}, group.rank() == 0 ? 256.0 : 1.0)).backward();
      for (const at::Tensor& slice : model->parameters()) {
        EXPECT_EQ(slice.grad().scalar_type(), at::kFloat);
        if (slice.numel() == 0) continue;
        EXPECT_EQ(slice.grad()[0].item<double>(), low ? 128.0 : 128.5);
      }
    }
  });
}

TEST(MixedPrecisionTest, TheModuleComputesInItsDtypeAndTheOptimizerInItsOwn) {
  RunRanks(2, [](ProcessGroup&) {
    auto net = std::make_shared<Net>();
    FSDPOptions options = In(at::kBFloat16);
    FSDPWrapper model(net, options);
    EXPECT_EQ(model->forward(torch::ones({2, 6})).scalar_type(), at::kBFloat16);
    EXPECT_EQ(net->seen, at::kBFloat16);
    for (const at::Tensor& p : net->parameters()) EXPECT_EQ(p.scalar_type(), at::kBFloat16);
    for (const at::Tensor& slice : model->parameters()) EXPECT_EQ(slice.scalar_type(), at::kFloat);

    options.mixed_precision.output_dtype = at::kFloat;
    options.mixed_precision.keep_precision = [](const std::string& name) {
      return name.substr(0, 4) == "norm";
    };
    auto other = std::make_shared<Net>();
    FSDPWrapper kept(other, options);
    EXPECT_EQ(kept->forward(torch::ones({2, 6})).scalar_type(), at::kFloat);
    EXPECT_EQ(other->norm->weight.scalar_type(), at::kFloat);
    EXPECT_EQ(other->first->weight.scalar_type(), at::kBFloat16);
  });
}

TEST(MixedPrecisionTest, BatchNormKeepsItsParametersAndStatistics) {
  RunRanks(2, [](ProcessGroup&) {
    torch::nn::BatchNorm1d norm(4);
    torch::nn::Sequential net(torch::nn::Conv1d(1, 4, 3), norm);
    FSDPWrapper model(net, In(at::kBFloat16));
    const at::Tensor x = torch::randn({8, 1, 10}) + 3;
    const at::Tensor y = model->forward(x);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    y.square().sum().backward();
    EXPECT_EQ(norm->weight.scalar_type(), at::kFloat);
    EXPECT_EQ(norm->running_mean.scalar_type(), at::kFloat);
    EXPECT_NE(norm->running_mean.abs().sum().item<float>(), 0);
    for (const at::Tensor& slice : model->parameters()) EXPECT_TRUE(slice.grad().defined());
  });
}

TEST(MixedPrecisionTest, FullParametersShowAndKeepEveryBit) {
  for (const int world : {1, 3}) {
    RunRanks(world, [](ProcessGroup&) {
      auto net = std::make_shared<Net>();
      const std::vector<at::Tensor> exact = Net().parameters();
      FSDPWrapper model(net, In(at::kBFloat16));
      const at::Tensor one_third = at::full({16, 6}, 1.0 / 3);
      {
        const FullParameters scope(model);
        for (size_t i = 0; i < exact.size(); ++i) {
          EXPECT_TRUE(at::equal(net->parameters()[i], exact[i]));
        }
        const torch::NoGradGuard no_grad;
        net->first->weight.copy_(one_third);
      }
      EXPECT_EQ(net->first->weight.scalar_type(), at::kBFloat16);
      model->forward(torch::ones({2, 6})).sum().backward();
      EXPECT_TRUE(model->parameters()[0].grad().defined());
      const FullParameters scope(model, /*writeback=*/false);
      EXPECT_TRUE(at::equal(net->first->weight, one_third));
    });
  }
}

TEST(MixedPrecisionTest, ADtypeThatCannotHoldParametersIsRefused) {
  RunRanks(1, [](ProcessGroup&) {
    try {
      FSDPWrapper model(std::make_shared<Net>(), In(at::kLong));
      ADD_FAILURE() << "was accepted";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("mixed_precision.param_dtype is Long"));
    }
  });
}

}  // namespace
}  // namespace medfusion::testing
