// The permutations of PyTorch's CPU generator, up to sizes where it takes another algorithm:
// large_reference.inc was made with it, by make_reference.py --large.
#include "medfusion/sampler/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace medfusion {
namespace {

struct Reference {
  int64_t size;
  uint64_t seed, digest;
  std::vector<uint32_t> head, tail;
};

// digest() of make_reference.py.
uint64_t Digest(const std::vector<uint32_t>& order) {
  uint64_t sum = 0;
  for (uint64_t k = 0; k < order.size(); ++k) {
    uint64_t x = order[k] + (k << 32);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    sum += x ^ (x >> 31);
  }
  return sum;
}

TEST(LargePermutationTest, ChangesTheAlgorithmWherePyTorchDoes) {
  const std::vector<Reference> table = {
#include "tests/sampler/large_reference.inc"
  };
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[1].size, kLargePermutation);
  for (const Reference& row : table) {
    SCOPED_TRACE(row.size);
    const std::vector<uint32_t> order = TorchPermutation<uint32_t>(row.size, row.seed);
    EXPECT_TRUE(std::equal(row.head.begin(), row.head.end(), order.begin()));
    EXPECT_TRUE(std::equal(row.tail.rbegin(), row.tail.rend(), order.rbegin()));
    EXPECT_EQ(Digest(order), row.digest);
  }
}

}  // namespace
}  // namespace medfusion
