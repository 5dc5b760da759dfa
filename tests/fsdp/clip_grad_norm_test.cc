// ClipGradNorm under every strategy: the norm of the whole gradient, and one decision for all
// ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "medfusion/distributed/device_mesh.h"
#include "medfusion/fsdp/fsdp.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::HasSubstr;

// The gradient of its weight is `gradient`, on every rank.
struct WithGradient {
  WithGradient(ProcessGroup& group, ShardingStrategy strategy, const at::Tensor& gradient)
      : linear(torch::nn::LinearOptions(gradient.numel(), 1).bias(false)) {
    linear->to(gradient.scalar_type());
    FSDPOptions options;
    options.sharding_strategy = strategy;
    if (strategy == ShardingStrategy::HYBRID_SHARD) {
      const int replicas = group.size() % 2 == 0 ? 2 : 1;
      options.mesh =
          DeviceMesh::Create(group.shared_from_this(), replicas, group.size() / replicas).value();
    }
    model = std::make_unique<FSDPWrapper<torch::nn::Linear>>(linear, options);
    model->forward(gradient.view({1, -1})).sum().backward();
  }
  // This rank's part, and where it begins.
  at::Tensor part() const { return model->parameters()[0].grad(); }
  int64_t offset() const { return model->DescribeState()[0].offset; }

  torch::nn::Linear linear;
  std::unique_ptr<FSDPWrapper<torch::nn::Linear>> model;
};

class ClipGradNormTest : public ::testing::TestWithParam<std::tuple<int, ShardingStrategy>> {
 protected:
  int world() const { return std::get<0>(GetParam()); }
  ShardingStrategy strategy() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(WorldSizesAndStrategies, ClipGradNormTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(ShardingStrategy::FULL_SHARD,
                                                              ShardingStrategy::SHARD_GRAD_OP,
                                                              ShardingStrategy::NO_SHARD,
                                                              ShardingStrategy::HYBRID_SHARD)),
                         [](const auto& info) {
                           return std::string(ShardingStrategyName(std::get<1>(info.param))) +
                                  "On" + std::to_string(std::get<0>(info.param));
                         });

TEST_P(ClipGradNormTest, ThreeAndFourHaveNormFiveAlsoWhereSquaresOverflow) {
  struct Case {
    at::ScalarType dtype;
    double magnitude, tolerance;
  };
  for (const Case& c : {Case{at::kDouble, 1, 1e-15}, Case{at::kDouble, 1e200, 1e-15},
                        Case{at::kDouble, 1e-200, 1e-15}, Case{at::kFloat, 1e30, 1e-7}}) {
    RunRanks(world(), [&](ProcessGroup& group) {
      const at::Tensor gradient = torch::tensor({3.0, 4.0}).to(at::kDouble) * c.magnitude;
      const WithGradient with(group, strategy(), gradient.to(c.dtype));
      const at::Tensor before = with.part().clone();
      const GradientNorm norm = with.model->ClipGradNorm(1);
      EXPECT_TRUE(norm.finite);
      EXPECT_NEAR(norm.norm / c.magnitude, 5, 5 * c.tolerance);
      if (c.magnitude < 1) {
        EXPECT_TRUE(at::equal(with.part(), before)) << "a smaller norm than allowed";
        return;
      }
      const at::Tensor expected =
          torch::tensor({0.6, 0.8}, at::kDouble).narrow(0, with.offset(), with.part().numel());
      EXPECT_TRUE(at::allclose(with.part().flatten().to(at::kDouble), expected, 0, c.tolerance));
      EXPECT_NEAR(with.model->ClipGradNorm(10).norm, 1, 1e-7);
      EXPECT_EQ(with.model->nonfinite_gradients(), 0);
    });
  }
}

TEST_P(ClipGradNormTest, ANormThatIsNotFiniteIsOneDecisionCountedAndChangesNoBit) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    RunRanks(world(), [&](ProcessGroup& group) {
      const WithGradient with(group, strategy(), torch::arange(1, 9).to(at::kDouble));
      // On one rank only, as a faulty machine would have it.
      if (group.rank() == group.size() - 1) with.part().flatten()[0] = bad;
      const at::Tensor before = with.part().clone();
      for (int event = 1; event <= 2; ++event) {
        const GradientNorm norm = with.model->ClipGradNorm(1);
        EXPECT_FALSE(norm.finite);
        EXPECT_FALSE(std::isfinite(norm.norm));
        EXPECT_EQ(with.model->nonfinite_gradients(), event);
      }
      EXPECT_TRUE(at::equal(with.part().view(at::kLong), before.view(at::kLong)));
    });
  }
}

TEST(ClipGradNormLogTest, RankZeroReportsEachNonfiniteNormOnce) {
  ::testing::internal::CaptureStderr();
  RunRanks(2, [](ProcessGroup& group) {
    const WithGradient with(group, ShardingStrategy::FULL_SHARD,
                            torch::full({4}, std::numeric_limits<float>::infinity()));
    with.model->ClipGradNorm(1);
    with.model->ClipGradNorm(1);
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("norm of the gradients is inf, for the 1. time"));
  EXPECT_THAT(log, HasSubstr("for the 2. time"));
  EXPECT_EQ(log.find("for the 2. time"), log.rfind("for the 2. time"));
}

TEST(ClipGradNormLogTest, AMaximumThatIsNoNumberIsRefused) {
  RunRanks(1, [](ProcessGroup& group) {
    const WithGradient with(group, ShardingStrategy::FULL_SHARD, torch::ones({2}));
    EXPECT_THROW(with.model->ClipGradNorm(std::nan("")), std::invalid_argument);
    EXPECT_THROW(with.model->ClipGradNorm(-1), std::invalid_argument);
  });
}

}  // namespace
}  // namespace medfusion::testing
