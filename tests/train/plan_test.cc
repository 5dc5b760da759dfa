#include <gtest/gtest.h>

#include <limits>

#include "medfusion/train/early_stopping.h"
#include "medfusion/train/step_plan.h"

namespace medfusion {
namespace {

TEST(StepPlanTest, StepsCoverEverySampleOnceForAnyNumberOfRanks) {
  for (int64_t samples = 0; samples <= 40; ++samples) {
    for (const int64_t ranks : {1, 2, 3}) {
      for (const int64_t accumulate : {1, 2, 3}) {
        const StepPlan plan(samples, 4, ranks, accumulate);
        int64_t covered = 0, batches = 0;
        for (int64_t step = 0; step < plan.steps(); ++step) {
          EXPECT_GT(plan.SamplesOf(step), 0);
          EXPECT_GT(plan.BatchesOf(step), 0);
          EXPECT_LE(plan.BatchesOf(step), accumulate);
          covered += plan.SamplesOf(step);
          batches += plan.BatchesOf(step);
        }
        EXPECT_EQ(covered, samples);
        EXPECT_EQ(batches, plan.batches());
      }
    }
  }
}

TEST(StepPlanTest, EqualJointBatchesGiveEqualSteps) {
  const StepPlan one(398, 24, 1, 1), three(398, 8, 3, 1), accumulated(398, 6, 2, 2);
  ASSERT_EQ(one.steps(), three.steps());
  ASSERT_EQ(one.steps(), accumulated.steps());
  for (int64_t step = 0; step < one.steps(); ++step) {
    EXPECT_EQ(one.SamplesOf(step), three.SamplesOf(step));
    EXPECT_EQ(one.SamplesOf(step), accumulated.SamplesOf(step));
  }
}

TEST(EarlyStoppingTest, StopsAfterPatienceEpochsWithoutImprovement) {
  EarlyStopping stopping{.patience = 2};
  EXPECT_TRUE(stopping.Update(1, 0.5));
  EXPECT_FALSE(stopping.Update(2, 0.5));  // equal is no improvement
  EXPECT_FALSE(stopping.ShouldStop());
  EXPECT_TRUE(stopping.Update(3, 0.4));
  EXPECT_FALSE(stopping.Update(4, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_FALSE(stopping.ShouldStop());
  EXPECT_FALSE(stopping.Update(5, 0.6));
  EXPECT_TRUE(stopping.ShouldStop());
  EXPECT_EQ(stopping.best_epoch, 3);
  EXPECT_EQ(stopping.best_loss, 0.4);
}

TEST(EarlyStoppingTest, NeverStopsWithoutPatience) {
  EarlyStopping stopping;
  for (int epoch = 1; epoch < 100; ++epoch) stopping.Update(epoch, epoch);
  EXPECT_FALSE(stopping.ShouldStop());
}

}  // namespace
}  // namespace medfusion
