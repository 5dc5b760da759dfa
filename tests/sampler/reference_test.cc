// Index for index equality with PyTorch: reference.inc was made with it, by make_reference.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "medfusion/sampler/distributed_sampler.h"

namespace medfusion {
namespace {

struct Reference {
  int64_t size, num_replicas, rank, seed, epoch;
  bool shuffle, drop_last;
  int64_t length;
  uint64_t digest;
  std::vector<size_t> head, tail;
};

// digest() of make_reference.py.
uint64_t Digest(const std::vector<size_t>& indices) {
  uint64_t sum = 0;
  for (size_t k = 0; k < indices.size(); ++k) {
    uint64_t x = indices[k] + (uint64_t{k} << 32);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    sum += x ^ (x >> 31);
  }
  return sum;
}

TEST(SamplerReferenceTest, GivesPyTorchsIndices) {
  const std::vector<Reference> table = {
#include "tests/sampler/reference.inc"
  };
  ASSERT_GT(table.size(), 200u);
  for (const Reference& row : table) {
    SCOPED_TRACE(testing::Message()
                 << row.size << " samples, rank " << row.rank << " of " << row.num_replicas
                 << ", seed " << row.seed << ", epoch " << row.epoch << ", shuffle " << row.shuffle
                 << ", drop_last " << row.drop_last);
    DistributedSampler sampler(
        row.size, row.num_replicas, row.rank,
        {.shuffle = row.shuffle, .seed = row.seed, .drop_last = row.drop_last});
    sampler.SetEpoch(row.epoch);
    ASSERT_EQ(sampler.size(), row.length);
    const std::vector<size_t> indices = sampler.Next(1'000'000).value_or(std::vector<size_t>());
    ASSERT_EQ(indices.size(), static_cast<size_t>(row.length));
    EXPECT_TRUE(std::equal(row.head.begin(), row.head.end(), indices.begin()));
    EXPECT_TRUE(std::equal(row.tail.rbegin(), row.tail.rend(), indices.rbegin()));
    EXPECT_EQ(Digest(indices), row.digest);
    EXPECT_FALSE(sampler.Next(1).has_value());
  }
}

}  // namespace
}  // namespace medfusion
