#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "medfusion/train/early_stopping.h"
#include "medfusion/train/options.h"
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

TEST(TrainOptionsTest, AValueOutOfRangeIsNamed) {
  const auto message = [](const auto& change) {
    TrainOptions options;
    EXPECT_TRUE(options.Check().ok());
    change(options);
    return std::string(options.Check().message());
  };
  EXPECT_EQ(message([](TrainOptions& o) { o.batch_size = 0; }),
            "batch_size=0 is out of range; expected 1 or more");
  EXPECT_EQ(message([](TrainOptions& o) { o.save_interval = -1; }),
            "save_interval=-1 is out of range; expected 0 or more");
  EXPECT_EQ(message([](TrainOptions& o) { o.learning_rate = -0.5; }),
            "learning_rate=-0.5 is out of range; expected 0 or more");
  EXPECT_THAT(
      message([](TrainOptions& o) { o.clip_norm = std::numeric_limits<double>::quiet_NaN(); }),
      ::testing::HasSubstr("clip_norm=nan is out of range"));
}

TEST(TrainOptionsTest, OnNonfiniteIsStopOrSkip) {
  EXPECT_EQ(ParseOnNonfinite("skip").value(), OnNonfinite::kSkip);
  EXPECT_EQ(ParseOnNonfinite("stop").value(), OnNonfinite::kStop);
  EXPECT_EQ(ParseOnNonfinite("pray").status().message(),
            "on_nonfinite=pray is unknown; expected stop or skip");
}

}  // namespace
}  // namespace medfusion
