#include "medfusion/ddp/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace medfusion {
namespace {

using ::testing::ElementsAre;

const std::vector<BucketItem> kFourFloats = {{10, 4, 0}, {10, 4, 0}, {10, 4, 0}, {10, 4, 0}};

TEST(BucketPlanTest, FirstBucketClosesAtTheSmallerLimit) {
  EXPECT_THAT(PlanBuckets(kFourFloats, std::vector<int>{3, 2, 1, 0}, {40, 80}),
              ElementsAre(ElementsAre(3), ElementsAre(2, 1), ElementsAre(0)));
}

TEST(BucketPlanTest, BucketMayOvershootItsLimitByOneItem) {
  EXPECT_THAT(PlanBuckets(kFourFloats, std::vector<int>{0, 1, 2, 3}, {50, 50}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST(BucketPlanTest, KindsNeverShareABucketAndBucketsComeInOrderOfCompletion) {
  const std::vector<BucketItem> items = {{10, 4, 0}, {10, 2, 1}, {10, 4, 0}, {10, 2, 1}};
  // Kind 0 is complete with the third item, kind 1 with the fourth.
  EXPECT_THAT(PlanBuckets(items, std::vector<int>{0, 1, 2, 3}, {1000, 1000}),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(BucketPlanTest, EveryKindHasASmallFirstBucket) {
  const std::vector<BucketItem> items = {{10, 4, 0}, {10, 4, 1}, {10, 4, 0}, {10, 4, 1}};
  EXPECT_THAT(PlanBuckets(items, std::vector<int>{0, 1, 2, 3}, {1, 1000}),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
}

TEST(BucketPlanTest, NothingGivesNoBuckets) { EXPECT_TRUE(PlanBuckets({}, {}, {1, 1}).empty()); }

TEST(BucketPlanTest, RefusesOrdersThatAreNoPermutation) {
  EXPECT_THROW(PlanBuckets(kFourFloats, std::vector<int>{0, 1, 2}, {1, 1}), std::invalid_argument);
  EXPECT_THROW(PlanBuckets(kFourFloats, std::vector<int>{0, 1, 2, 2}, {1, 1}),
               std::invalid_argument);
  EXPECT_THROW(PlanBuckets(kFourFloats, std::vector<int>{0, 1, 2, 4}, {1, 1}),
               std::invalid_argument);
}

TEST(BucketPlanTest, RefusesLimitsThatAreNotPositive) {
  EXPECT_THROW(PlanBuckets(kFourFloats, std::vector<int>{0, 1, 2, 3}, {0, 1}),
               std::invalid_argument);
}

TEST(BucketLayoutTest, MembersBeginOnBoundariesOf64Bytes) {
  const std::vector<BucketItem> items = {{3, 4, 0}, {17, 4, 0}, {1, 4, 0}};
  const BucketLayout layout = LayOutBucket(items, std::vector<int>{2, 1, 0});
  EXPECT_THAT(layout.offsets, ElementsAre(0, 16, 48));
  EXPECT_EQ(layout.numel, 51);
}

TEST(BucketLayoutTest, ItemsWithoutElementsTakeNoRoom) {
  const std::vector<BucketItem> items = {{0, 4, 0}, {2, 4, 0}};
  EXPECT_EQ(LayOutBucket(items, std::vector<int>{0, 1}).numel, 2);
}

}  // namespace
}  // namespace medfusion
