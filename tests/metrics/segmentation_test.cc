#include "medfusion/metrics/segmentation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

#include "tests/metrics/spread.h"

namespace medfusion {
namespace {

using ::medfusion::testing::MergeSpread;
using ::medfusion::testing::Rows;

TEST(SegmentationMetricsTest, GivesTheOverlapsOfHandDrawnCases) {
  SegmentationMetrics metric({.num_classes = 2});
  // Case 0: 2 of 3 labelled pixels found, none wrong: Dice 4/5, IoU 2/3. Case 1: 1 found, 1 missed,
  // 2 wrong: Dice 2/5, IoU 1/4. Case 2: nothing to find and nothing found: no opinion.
  const at::Tensor labels = torch::tensor({{1, 1, 1, 0}, {1, 1, 0, 0}, {0, 0, 0, 0}});
  const at::Tensor predicted = torch::tensor({{1, 1, 0, 0}, {1, 0, 1, 1}, {0, 0, 0, 0}});
  metric.Update(predicted, labels);
  EXPECT_EQ(metric.Cases(1), 2);
  EXPECT_DOUBLE_EQ(metric.Dice(1).value(), (4.0 / 5.0 + 2.0 / 5.0) / 2.0);
  EXPECT_DOUBLE_EQ(metric.Iou(1).value(), (2.0 / 3.0 + 1.0 / 4.0) / 2.0);
  EXPECT_EQ(metric.PooledDice(1).value(), 6.0 / 10.0);
  EXPECT_EQ(metric.PooledIou(1).value(), 3.0 / 7.0);
  EXPECT_EQ(metric.MeanDice(), metric.Dice(1));  // the background is left out
  EXPECT_EQ(metric.Cases(0), 3);
  EXPECT_EQ(metric.Results().size(), 5u);
}

TEST(SegmentationMetricsTest, ReadsScoresClassMapsAndMasks) {
  torch::manual_seed(6);
  const at::Tensor labels = torch::randint(0, 2, {2, 3, 4, 5});
  const at::Tensor scores = torch::rand({2, 2, 3, 4, 5});
  SegmentationMetrics of_scores({.num_classes = 2});
  of_scores.Update(scores, labels);
  SegmentationMetrics of_classes({.num_classes = 2});
  of_classes.Update(scores.argmax(1).to(torch::kByte), labels);
  SegmentationMetrics of_mask({.num_classes = 2});
  of_mask.Update(scores.select(1, 1) > scores.select(1, 0), labels.to(torch::kBool));
  EXPECT_TRUE(of_scores.Dice(1).defined());
  EXPECT_EQ(of_scores.Results(), of_classes.Results());
  EXPECT_EQ(of_scores.Results(), of_mask.Results());
}

TEST(SegmentationMetricsTest, AClassWithoutCasesIsUndefinedAndLeftOutOfTheMean) {
  SegmentationMetrics metric({.num_classes = 3});
  EXPECT_EQ(metric.MeanDice().reason(), "no case has any class but the background");
  metric.Update(torch::tensor({{0, 1}}), torch::tensor({{0, 1}}));
  EXPECT_EQ(metric.Dice(2).reason(), "no case has class 2");
  EXPECT_EQ(metric.PooledDice(2).reason(), "no case has class 2");
  EXPECT_EQ(metric.MeanDice().value(), 1.0);
  EXPECT_THROW(metric.Dice(3), std::out_of_range);
}

TEST(SegmentationMetricsTest, IgnoredPixelsCountNowhere) {
  SegmentationMetrics metric({.num_classes = 2, .ignore_label = -1});
  metric.Update(torch::tensor({{1, 1, 1}}), torch::tensor({{1, -1, 0}}));
  EXPECT_EQ(metric.PooledDice(1).value(), 2.0 / 3.0);
}

TEST(SegmentationMetricsTest, EqualsOneProcessToTheBitHoweverTheCasesAreSpread) {
  std::mt19937 random(7);
  torch::manual_seed(7);
  for (int trial = 0; trial < 30; ++trial) {
    const int64_t cases = 1 + static_cast<int64_t>(random() % 30);
    const at::Tensor scores = torch::rand({cases, 3, 4, 4});
    const at::Tensor labels = torch::randint(0, 3, {cases, 4, 4});
    SegmentationMetrics alone({.num_classes = 3});
    alone.Update(scores, labels);
    const SegmentationMetrics merged =
        MergeSpread(SegmentationMetrics({.num_classes = 3}), cases, 1 + trial % 4, random,
                    [&](SegmentationMetrics& local, const std::vector<int64_t>& batch) {
                      local.Update(Rows(scores, batch), Rows(labels, batch));
                    });
    EXPECT_EQ(merged.Results(), alone.Results());
    // And the one process is right: case by case, pixel by pixel.
    double sum = 0.0;
    for (int64_t i = 0; i < cases; ++i) {
      const at::Tensor found = scores[i].argmax(0).eq(2);
      const at::Tensor truth = labels[i].eq(2);
      sum += 2.0 * found.logical_and(truth).sum().item<double>() /
             (found.sum().item<double>() + truth.sum().item<double>());
    }
    if (alone.Cases(2) == cases) {
      EXPECT_NEAR(alone.Dice(2).value(), sum / cases, 1e-14);
    }
  }
}

TEST(SegmentationMetricsTest, AStateIsCheckedBeforeItIsMerged) {
  SegmentationMetrics metric({.num_classes = 2});
  metric.Update(torch::tensor({{1, 0}}), torch::tensor({{1, 1}}));
  SegmentationMetrics restored({.num_classes = 2});
  EXPECT_TRUE(restored.Merge(metric.State()).ok());
  EXPECT_EQ(restored.Results(), metric.Results());
  EXPECT_FALSE(SegmentationMetrics({.num_classes = 3}).Merge(metric.State()).ok());
  MetricState broken = metric.State();
  broken.reals.pop_back();
  EXPECT_FALSE(restored.Merge(broken).ok());
  broken = metric.State();
  broken.integers.back() = -1;
  EXPECT_FALSE(restored.Merge(broken).ok());
  EXPECT_EQ(restored.State(), metric.State());
}

}  // namespace
}  // namespace medfusion
