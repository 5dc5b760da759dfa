#include "medfusion/metrics/meters.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/metrics/spread.h"

namespace medfusion {
namespace {

using ::medfusion::testing::MergeSpread;

TEST(MeanMeterTest, WeighsBatchesByTheirSamples) {
  MeanMeter loss;
  EXPECT_EQ(loss.Mean().reason(), "no values");
  loss.Update(1.0, 3.0);
  loss.Update(5.0, 1.0);
  EXPECT_EQ(loss.Mean().value(), 2.0);
  EXPECT_EQ(loss.TotalWeight(), 4.0);
}

TEST(MeanMeterTest, AnEmptyBatchWeighsNothingEvenWhenItsLossIsNan) {
  MeanMeter loss;
  loss.Update(0.25, 4.0);
  loss.Update(std::nan(""), 0.0);
  EXPECT_EQ(loss.Mean().value(), 0.25);
  loss.Update(std::nan(""), 1.0);
  EXPECT_TRUE(std::isnan(loss.Mean().value()));
}

TEST(MeanMeterTest, RefusesWeightsThatAreNone) {
  for (const double weight : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    MeanMeter loss;
    loss.Update(1.0, weight);
    EXPECT_NE(loss.status().message().find("expected a finite number of at least 0"),
              std::string::npos)
        << loss.status();
    EXPECT_FALSE(loss.Mean().defined());
  }
}

TEST(MeanMeterTest, TakesTensorsOfAnyShape) {
  MeanMeter values;
  values.Update(torch::tensor({{1, 2}, {3, 6}}));
  EXPECT_EQ(values.Mean().value(), 3.0);
  values.Update(at::Tensor());
  EXPECT_FALSE(values.status().ok());
}

TEST(MeanMeterTest, IsTheSameToTheBitHoweverTheSamplesAreSpread) {
  std::mt19937 random(9);
  std::lognormal_distribution<double> losses(0.0, 8.0);
  for (int trial = 0; trial < 100; ++trial) {
    const int64_t samples = 1 + static_cast<int64_t>(random() % 50);
    std::vector<double> values;
    std::vector<double> weights;
    MeanMeter alone;
    long double sum = 0.0L;
    long double total = 0.0L;
    for (int64_t i = 0; i < samples; ++i) {
      values.push_back(losses(random));
      weights.push_back(1.0 + static_cast<double>(random() % 32));
      alone.Update(values.back(), weights.back());
      sum += static_cast<long double>(values.back()) * weights.back();
      total += weights.back();
    }
    EXPECT_DOUBLE_EQ(alone.Mean().value(), static_cast<double>(sum / total));
    const MeanMeter merged = MergeSpread(MeanMeter(), samples, 1 + trial % 4, random,
                                         [&](MeanMeter& local, const std::vector<int64_t>& batch) {
                                           for (const int64_t i : batch)
                                             local.Update(values[i], weights[i]);
                                         });
    EXPECT_EQ(merged.Mean(), alone.Mean());
  }
}

TEST(MeanMeterTest, AStateIsCheckedBeforeItIsMerged) {
  MeanMeter loss;
  EXPECT_FALSE(loss.Merge({{2}, {1.0}}).ok());
  EXPECT_FALSE(loss.Merge({{}, {1.0}}).ok());
  EXPECT_FALSE(loss.Merge({{-1}, {}}).ok());
}

TEST(SumMeterTest, KeepsIntegersExact) {
  SumMeter seen;
  EXPECT_EQ(seen.Sum(), 0.0);
  seen.Update(int64_t{1} << 60);
  seen.Update(3);
  SumMeter merged;
  EXPECT_TRUE(merged.Merge(seen.State()).ok());
  merged.Update(-(int64_t{1} << 60));
  merged.Update(0.5);
  EXPECT_EQ(merged.Sum(), 3.5);
  EXPECT_FALSE(merged.Merge({{1}, {}}).ok());
}

TEST(ThroughputMeterTest, DividesAllSamplesByTheSlowestRanksTime) {
  ThroughputMeter fast;
  EXPECT_EQ(fast.SamplesPerSecond().reason(), "no time has passed");
  fast.Update(100, 1.0);
  ThroughputMeter slow;
  slow.Update(50, 1.5);
  slow.Update(50, 0.5);
  EXPECT_TRUE(fast.Merge(slow.State()).ok());
  EXPECT_EQ(fast.Samples(), 200);
  EXPECT_EQ(fast.SamplesPerSecond().value(), 100.0);
  fast.Update(-1, 1.0);
  EXPECT_FALSE(fast.status().ok());
}

}  // namespace
}  // namespace medfusion
