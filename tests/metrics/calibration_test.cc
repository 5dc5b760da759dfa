#include "medfusion/metrics/calibration.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

#include "tests/metrics/spread.h"

namespace medfusion {
namespace {

using ::medfusion::testing::MergeSpread;
using ::medfusion::testing::Rows;

TEST(CalibrationTest, GivesTheScoresOfAHandMadeExample) {
  Calibration metric({.num_bins = 2});
  // Bin 0 has 0.25 and 0.25 with one positive in two, bin 1 has 0.75 and 1.0 with two in two.
  metric.Update(torch::tensor({0.25, 0.25, 0.75, 1.0}), torch::tensor({0, 1, 1, 1}));
  // (0.0625 + 0.5625 + 0.0625 + 0) / 4
  EXPECT_EQ(metric.BrierScore().value(), 0.171875);
  // 2/4 * |0.25 - 0.5| + 2/4 * |0.875 - 1|
  EXPECT_EQ(metric.ExpectedCalibrationError().value(), 0.1875);
}

TEST(CalibrationTest, IsUndefinedWithoutSamplesAndNeedsABin) {
  EXPECT_EQ(Calibration().BrierScore().reason(), "no samples");
  EXPECT_EQ(Calibration().ExpectedCalibrationError().reason(), "no samples");
  EXPECT_THROW(Calibration({.num_bins = 0}), std::invalid_argument);
}

TEST(CalibrationTest, RefusesLogits) {
  Calibration metric;
  metric.Update(torch::tensor({-2.0, 0.3}), torch::tensor({0, 1}));
  EXPECT_NE(metric.status().message().find("score 0 of this update is -2"), std::string::npos)
      << metric.status();
}

TEST(CalibrationTest, EqualsOneProcessToTheBitHoweverTheSamplesAreSpread) {
  std::mt19937 random(8);
  torch::manual_seed(8);
  for (int trial = 0; trial < 40; ++trial) {
    const int64_t samples = 1 + static_cast<int64_t>(random() % 80);
    const at::Tensor scores = torch::rand({samples}, torch::kDouble);
    const at::Tensor labels = torch::randint(0, 2, {samples});
    Calibration alone;
    alone.Update(scores, labels);
    EXPECT_NEAR(alone.BrierScore().value(), (scores - labels).square().mean().item<double>(),
                1e-15);
    const Calibration merged =
        MergeSpread(Calibration(), samples, 1 + trial % 4, random,
                    [&](Calibration& local, const std::vector<int64_t>& batch) {
                      local.Update(Rows(scores, batch), Rows(labels, batch));
                    });
    EXPECT_EQ(merged.Results(), alone.Results());
  }
}

TEST(CalibrationTest, AStateIsCheckedBeforeItIsMerged) {
  Calibration metric;
  metric.Update(torch::tensor({0.3}), torch::tensor({1}));
  EXPECT_FALSE(Calibration({.num_bins = 3}).Merge(metric.State()).ok());
  Calibration restored;
  EXPECT_TRUE(restored.Merge(metric.State()).ok());
  EXPECT_EQ(restored.Results(), metric.Results());
  MetricState broken = metric.State();
  broken.integers[3] = 1000;
  EXPECT_FALSE(restored.Merge(broken).ok());
}

}  // namespace
}  // namespace medfusion
