#include "medfusion/fsdp/shard_layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace medfusion {
namespace {

const std::vector<std::vector<int64_t>> kUnits = {{12, 4},         {1},      {3, 1, 0, 7}, {}, {0},
                                                  {5, 5, 5, 5, 5}, {100, 1}, {2, 1}};

TEST(ShardLayoutTest, PutsParametersOneAfterAnotherAndPadsTheEnd) {
  const ShardLayout layout = LayOutShards(std::vector<int64_t>{6, 4, 1}, 4);
  EXPECT_EQ(layout.offsets, (std::vector<int64_t>{0, 6, 10}));
  EXPECT_EQ(layout.numel, 11);
  EXPECT_EQ(layout.shard_numel, 3);
  EXPECT_EQ(layout.padded_numel(), 12);
}

TEST(ShardLayoutTest, SlicesOfAllRanksMakeUpEveryParameterOnceAndInOrder) {
  for (const std::vector<int64_t>& numels : kUnits) {
    for (int shards = 1; shards <= 7; ++shards) {
      const ShardLayout layout = LayOutShards(numels, shards);
      for (int p = 0; p < static_cast<int>(numels.size()); ++p) {
        int64_t next = 0;
        for (int rank = 0; rank < shards; ++rank) {
          const ShardSlice slice = layout.Slice(p, rank);
          if (slice.numel == 0) continue;
          EXPECT_EQ(slice.parameter_offset, next);
          EXPECT_EQ(rank * layout.shard_numel + slice.shard_offset,
                    layout.offsets[p] + slice.parameter_offset);
          EXPECT_LE(slice.shard_offset + slice.numel, layout.shard_numel);
          next += slice.numel;
        }
        EXPECT_EQ(next, numels[p]) << "parameter " << p << " on " << shards << " shards";
      }
    }
  }
}

TEST(ShardLayoutTest, PadsByLessThanOneElementPerRank) {
  for (const std::vector<int64_t>& numels : kUnits) {
    for (int shards = 1; shards <= 7; ++shards) {
      const ShardLayout layout = LayOutShards(numels, shards);
      EXPECT_GE(layout.padding(), 0);
      EXPECT_LT(layout.padding(), shards);
    }
  }
}

TEST(ShardLayoutTest, RanksBeyondTheLastElementHoldNothing) {
  const ShardLayout layout = LayOutShards(std::vector<int64_t>{2, 1}, 4);
  EXPECT_EQ(layout.Slice(0, 0).numel, 1);
  EXPECT_EQ(layout.Slice(0, 1).numel, 1);
  EXPECT_EQ(layout.Slice(1, 2).numel, 1);
  EXPECT_EQ(layout.Slice(0, 3).numel, 0);
  EXPECT_EQ(layout.Slice(1, 3).numel, 0);
}

}  // namespace
}  // namespace medfusion
