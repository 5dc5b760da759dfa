#include "medfusion/sampler/distributed_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <string>

#include "tests/sampler/replicas.h"

namespace medfusion {
namespace {

using testing::HasSubstr;

std::string Refusal(int64_t size, int64_t num_replicas, int64_t rank, SamplerOptions options = {}) {
  try {
    DistributedSampler sampler(size, num_replicas, rank, options);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(SamplerTest, RefusesArgumentsByNameAndValue) {
  EXPECT_THAT(Refusal(-1, 2, 0), HasSubstr("size=-1"));
  EXPECT_THAT(Refusal(10, 0, 0), HasSubstr("num_replicas=0"));
  EXPECT_THAT(Refusal(10, -3, 0), HasSubstr("num_replicas=-3"));
  EXPECT_THAT(Refusal(10, 4, 4), HasSubstr("rank=4 is out of range for num_replicas=4"));
  EXPECT_THAT(Refusal(10, 4, 4), HasSubstr("expected 0..3"));
  EXPECT_THAT(Refusal(10, 4, -1), HasSubstr("rank=-1"));
  EXPECT_THAT(Refusal(10, 4, 0, {.drop_last = true, .mode = SamplerMode::kExactlyOnce}),
              HasSubstr("drop_last=true"));
  EXPECT_EQ(Refusal(0, 1, 0), "");
}

TEST(SamplerTest, RefusesAnEmptyBatch) {
  DistributedSampler sampler(10, 1, 0);
  EXPECT_THROW(sampler.Next(0), std::invalid_argument);
}

TEST(SamplerTest, GivesNothingOfAnEmptyDataset) {
  for (const SamplerMode mode : {SamplerMode::kPadded, SamplerMode::kExactlyOnce}) {
    DistributedSampler sampler(0, 3, 1, {.mode = mode});
    EXPECT_EQ(sampler.size(), 0);
    EXPECT_FALSE(sampler.Next(4).has_value());
  }
}

TEST(SamplerTest, EndsWithAShortBatchAndStartsAgainOnReset) {
  DistributedSampler sampler(10, 1, 0, {.shuffle = false});
  EXPECT_EQ(sampler.Next(4), (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(sampler.Next(4), (std::vector<size_t>{4, 5, 6, 7}));
  EXPECT_EQ(sampler.Next(4), (std::vector<size_t>{8, 9}));
  EXPECT_EQ(sampler.position(), 10);
  EXPECT_FALSE(sampler.Next(4).has_value());
  sampler.Reset();
  EXPECT_EQ(sampler.position(), 0);
  EXPECT_EQ(sampler.Next(2), (std::vector<size_t>{0, 1}));
}

TEST(SamplerTest, BatchSizeDoesNotChangeTheOrder) {
  DistributedSampler sampler(101, 2, 1, {.seed = 3});
  const std::vector<size_t> once = ReadAll(sampler, 101);
  for (const size_t batch_size : {1, 7, 50}) {
    sampler.Reset();
    EXPECT_EQ(ReadAll(sampler, batch_size), once);
  }
}

TEST(SamplerTest, EachEpochHasItsOwnOrderAndTheSameOneAgain) {
  DistributedSampler sampler(100, 2, 0);
  const std::vector<size_t> first = ReadAll(sampler);
  sampler.SetEpoch(1);
  const std::vector<size_t> second = ReadAll(sampler);
  EXPECT_NE(first, second);
  sampler.SetEpoch(0);
  EXPECT_EQ(ReadAll(sampler), first);
  sampler.SetEpoch(1);
  EXPECT_EQ(ReadAll(sampler), second);
}

TEST(SamplerTest, PadsAsOftenAsNeededWhenReplicasOutnumberSamples) {
  Replicas replicas = MakeReplicas(3, 8);
  for (const DistributedSampler& sampler : replicas) EXPECT_EQ(sampler.size(), 1);
  const Census census = ReadAll(replicas);
  ASSERT_EQ(census.size(), 3u);
  for (const auto& [index, times] : census) EXPECT_GE(times, 2) << index;
}

// Over many combinations: who reads what, and how often.
TEST(SamplerTest, CoversTheDatasetAsItsModePromises) {
  std::mt19937 dice(1);
  for (int trial = 0; trial < 400; ++trial) {
    const int64_t size = dice() % (trial % 2 == 0 ? 20 : 300);
    const int64_t num_replicas = trial % 40 == 0 ? 100 : 1 + dice() % 12;
    SamplerOptions options = {.shuffle = dice() % 2 == 0, .seed = static_cast<int64_t>(dice())};
    const int kind = trial % 3;
    options.drop_last = kind == 1;
    options.mode = kind == 2 ? SamplerMode::kExactlyOnce : SamplerMode::kPadded;
    SCOPED_TRACE(testing::Message() << "trial " << trial << ": " << size << " samples, "
                                    << num_replicas << " replicas, kind " << kind);
    Replicas replicas = MakeReplicas(size, num_replicas, options);
    int64_t total = 0;
    for (const DistributedSampler& sampler : replicas) {
      total += sampler.size();
      EXPECT_GE(sampler.size(), size / num_replicas);
      EXPECT_LE(sampler.size(), size / num_replicas + (options.drop_last ? 0 : 1));
    }
    const Census census = ReadAll(replicas);
    const int64_t distinct = static_cast<int64_t>(census.size());
    if (kind == 0) {
      EXPECT_EQ(distinct, size);
      EXPECT_EQ(total % num_replicas, 0);
      EXPECT_LT(total - size, num_replicas);
      for (const auto& [index, times] : census) EXPECT_LE(times, (total + size - 1) / size);
    } else {
      EXPECT_EQ(distinct, kind == 1 ? size - size % num_replicas : size);
      for (const auto& [index, times] : census) EXPECT_EQ(times, 1);
    }
  }
}

}  // namespace
}  // namespace medfusion
