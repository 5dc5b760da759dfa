// Dynamic loss scaling, on one rank and on several.
#include "medfusion/optim/grad_scaler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <vector>

#include "medfusion/optim/optim.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using torch::optim::SGDOptions;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One parameter of ones and its optimizer, which subtracts the gradient.
struct Job {
  at::Tensor parameter = torch::ones({3}).set_requires_grad(true);
  FusedSGD optimizer{std::vector<at::Tensor>{parameter}, SGDOptions(1)};

  // Whether the step was taken.
  bool Round(GradScaler& scaler, float gradient) {
    parameter.mutable_grad() = torch::full({3}, gradient * static_cast<float>(scaler.scale()));
    const bool stepped = scaler.Step(optimizer);
    scaler.Update();
    return stepped;
  }
};

TEST(GradScalerTest, BeginsWithPyTorchsDefaults) {
  const GradScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  const GradScalerOptions options;
  EXPECT_EQ(options.growth_factor, 2);
  EXPECT_EQ(options.backoff_factor, 0.5);
  EXPECT_EQ(options.growth_interval, 2000);
}

TEST(GradScalerTest, TheOptimizerSeesTheGradientOfTheLoss) {
  Job job;
  GradScaler scaler;
  scaler.Scale((job.parameter * 0.25).sum()).backward();
  EXPECT_EQ(job.parameter.grad()[0].item<float>(), 0.25f * 65536);
  EXPECT_TRUE(scaler.Unscale(job.optimizer));
  EXPECT_EQ(job.parameter.grad()[0].item<float>(), 0.25f);
  EXPECT_TRUE(scaler.Step(job.optimizer));
  scaler.Update();
  EXPECT_TRUE(at::equal(job.parameter, torch::full({3}, 0.75f)));
}

TEST(GradScalerTest, GrowsAfterEnoughCleanStepsAndBacksOffAtOnce) {
  Job job;
  GradScaler scaler({.init_scale = 1024, .growth_interval = 3});
  EXPECT_TRUE(job.Round(scaler, 0));
  EXPECT_TRUE(job.Round(scaler, 0));
  EXPECT_EQ(scaler.scale(), 1024);
  EXPECT_TRUE(job.Round(scaler, 0));
  EXPECT_EQ(scaler.scale(), 2048);
  EXPECT_TRUE(job.Round(scaler, 0));
  EXPECT_FALSE(job.Round(scaler, kInfinity));
  EXPECT_EQ(scaler.scale(), 1024);
  EXPECT_EQ(scaler.state().clean_steps, 0);  // the clean step before does not count any more
  EXPECT_FALSE(job.Round(scaler, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_EQ(scaler.scale(), 512);
  EXPECT_TRUE(at::equal(job.parameter, torch::ones({3})));
}

TEST(GradScalerTest, TheScaleStaysAPositiveNumber) {
  Job job;
  GradScaler large({.init_scale = 1.5e38, .growth_factor = 4, .growth_interval = 1});
  EXPECT_TRUE(job.Round(large, 0));
  EXPECT_EQ(large.scale(), static_cast<float>(1.5e38));
  GradScaler small({.init_scale = std::numeric_limits<float>::denorm_min()});
  EXPECT_FALSE(job.Round(small, kInfinity));
  EXPECT_GT(small.scale(), 0);
}

TEST(GradScalerTest, AStateGoesOnExactly) {
  Job job;
  const GradScalerOptions options = {.init_scale = 8, .growth_interval = 3};
  GradScaler first(options);
  job.Round(first, 0);
  job.Round(first, kInfinity);
  job.Round(first, 0);
  job.Round(first, 0);
  GradScaler second(options);
  second.SetState(first.state());
  EXPECT_EQ(second.state(), first.state());
  job.Round(first, 0);
  job.Round(second, 0);
  EXPECT_EQ(second.state(), first.state());
  EXPECT_EQ(second.scale(), 8);
  EXPECT_THROW(second.SetState({.scale = 0}), std::invalid_argument);
}

TEST(GradScalerTest, OneOverflowOfTwoOptimizersLeavesOutItsStepOnly) {
  Job good, bad;
  GradScaler scaler({.init_scale = 4});
  good.parameter.mutable_grad() = torch::full({3}, 2.0f);
  bad.parameter.mutable_grad() = torch::full({3}, kInfinity);
  EXPECT_TRUE(scaler.Step(good.optimizer));
  EXPECT_FALSE(scaler.Step(bad.optimizer));
  scaler.Update();
  EXPECT_EQ(scaler.scale(), 2);
  EXPECT_TRUE(at::equal(good.parameter, torch::full({3}, 0.5f)));
  EXPECT_TRUE(at::equal(bad.parameter, torch::ones({3})));
}

TEST(GradScalerTest, AnotherOrderOfCallsIsRefused) {
  Job job;
  GradScaler scaler;
  EXPECT_THROW(scaler.Update(), std::logic_error);
  job.parameter.mutable_grad() = torch::ones({3});
  scaler.Unscale(job.optimizer);
  EXPECT_THROW(scaler.Unscale(job.optimizer), std::logic_error);
  scaler.Step(job.optimizer);
  EXPECT_THROW(scaler.Step(job.optimizer), std::logic_error);
  scaler.Update();
  EXPECT_TRUE(scaler.Step(job.optimizer));
}

TEST(GradScalerTest, DisabledItOnlySteps) {
  Job job;
  GradScaler scaler({.enabled = false});
  const at::Tensor loss = job.parameter.sum();
  EXPECT_TRUE(scaler.Scale(loss).is_same(loss));
  job.parameter.mutable_grad() = torch::full({3}, 0.5f);
  EXPECT_TRUE(scaler.Step(job.optimizer));
  scaler.Update();
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_TRUE(at::equal(job.parameter, torch::full({3}, 0.5f)));
}

TEST(GradScalerTest, Float16GradientsAndUselessFactorsAreRefused) {
  GradScaler scaler;
  const std::vector<at::Tensor> halves = {at::Tensor(), torch::ones({2}, at::kHalf)};
  EXPECT_THROW(scaler.Unscale(halves), std::invalid_argument);
  EXPECT_THROW(GradScaler({.backoff_factor = 1}), std::invalid_argument);
  EXPECT_THROW(GradScaler({.growth_factor = 0.5}), std::invalid_argument);
  EXPECT_THROW(GradScaler({.growth_interval = 0}), std::invalid_argument);
}

TEST(GradScalerTest, OneRanksOverflowIsAllRanksDecision) {
  RunRanks(2, [](ProcessGroup& group) {
    Job job;
    GradScaler scaler({.init_scale = 16});  // the default group's ranks
    EXPECT_FALSE(job.Round(scaler, group.rank() == 1 ? kInfinity : 0.5f));
    EXPECT_EQ(scaler.scale(), 8);
    EXPECT_TRUE(at::equal(job.parameter, torch::ones({3})));
    EXPECT_TRUE(job.Round(scaler, 0.5f));
    EXPECT_TRUE(at::equal(job.parameter, torch::full({3}, 0.5f)));

    // A rank that holds no gradients takes part in the decision.
    const at::Tensor own = torch::full({3}, kInfinity);
    const std::vector<at::Tensor> some = {own};
    const auto gradients = group.rank() == 0 ? some : std::vector<at::Tensor>();
    EXPECT_FALSE(scaler.Unscale(gradients));
    scaler.Update();
    EXPECT_EQ(scaler.scale(), 4);
  });
}

}  // namespace
}  // namespace medfusion::testing
