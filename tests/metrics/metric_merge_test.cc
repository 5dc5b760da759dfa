#include "medfusion/metrics/metric_merge.h"

#include <gtest/gtest.h>

#include "medfusion/distributed/rank_list.h"
#include "medfusion/metrics/meters.h"

namespace medfusion {
namespace {

TEST(RankListTest, ReadsAsPeopleWriteRanks) {
  EXPECT_EQ(RankList({3}), "rank 3");
  EXPECT_EQ(RankList({0, 2}), "ranks 0, 2");
  EXPECT_EQ(RankList({0, 1}), "ranks 0, 1");
  EXPECT_EQ(RankList({0, 1, 2, 3, 5, 7, 8, 9}), "ranks 0-3, 5, 7-9");
}

std::string Encode(std::vector<const Metric*> metrics) { return EncodeMetrics(metrics); }

absl::Status Merge(const std::vector<std::string>& messages, std::vector<Metric*> merged) {
  return MergeEncodedMetrics(messages, merged);
}

TEST(MetricMergeTest, CarriesEveryBitOfEveryState) {
  MeanMeter one;
  one.Update(0.1, 3.0);  // no float holds it
  MeanMeter other;
  other.Update(0.5, 1.0);  // floats hold this one, and it travels as floats
  SumMeter count;
  count.Update(int64_t{1} << 53);
  count.Update(1);
  MeanMeter mean;
  SumMeter sum;
  ASSERT_TRUE(Merge({Encode({&one, &count}), Encode({&other, &count})}, {&mean, &sum}).ok());
  MeanMeter expected;
  expected.Update(0.1, 3.0);
  expected.Update(0.5, 1.0);
  EXPECT_EQ(mean.Mean(), expected.Mean());
  EXPECT_EQ(sum.Sum(), 18014398509481986.0);  // 2 * (2^53 + 1)
}

TEST(MetricMergeTest, StatesThatFloatsHoldTakeHalfTheBytes) {
  SumMeter in_floats;
  in_floats.Update(0.5);
  SumMeter in_doubles;
  in_doubles.Update(0.1);
  EXPECT_EQ(Encode({&in_floats}).size() + 4, Encode({&in_doubles}).size());
}

TEST(MetricMergeTest, ARefusedUpdateIsEveryRanksError) {
  MeanMeter good;
  MeanMeter bad;
  bad.Update(1.0, -1.0);
  MeanMeter merged;
  const absl::Status status = Merge({Encode({&good}), Encode({&bad})}, {&merged});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "rank 1: MeanMeter: weight is -1; expected a finite number of at least 0");
}

TEST(MetricMergeTest, RanksWithDifferentMetricsAreNamed) {
  MeanMeter mean;
  SumMeter sum;
  MeanMeter merged;
  const std::string mine = Encode({&mean});
  EXPECT_EQ(Merge({mine, Encode({&sum}), mine}, {&merged}).message(),
            "the ranks merge different metrics: ranks 0, 2 have MeanMeter; rank 1 has SumMeter");
  EXPECT_EQ(Merge({mine, Encode({})}, {&merged}).message(),
            "the ranks merge different metrics: rank 1 has none; rank 0 has MeanMeter");
  EXPECT_EQ(
      Merge({mine, Encode({&mean, &mean})}, {&merged}).message(),
      "the ranks merge different metrics: rank 0 has MeanMeter; rank 1 has MeanMeter, MeanMeter");
}

TEST(MetricMergeTest, AMessageThatIsCutShortIsAnError) {
  MeanMeter mean;
  mean.Update(0.1);
  const std::string message = Encode({&mean});
  MeanMeter merged;
  EXPECT_FALSE(Merge({message.substr(0, message.size() - 1)}, {&merged}).ok());
  EXPECT_FALSE(Merge({message, ""}, {&merged}).ok());
}

}  // namespace
}  // namespace medfusion
