#include "medfusion/data/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "medfusion/data/shuffle.h"

namespace medfusion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> Labels(std::vector<size_t> counts) {
  std::vector<int64_t> labels;
  for (size_t i = 0; i < counts.size(); ++i) labels.insert(labels.end(), counts[i], i);
  return labels;
}

std::vector<size_t> CountClasses(const std::vector<int64_t>& labels,
                                 const std::vector<size_t>& part, size_t classes) {
  std::vector<size_t> counts(classes);
  for (const size_t i : part) ++counts[labels[i]];
  return counts;
}

TEST(SplitTest, EverySampleIsInExactlyOnePart) {
  const auto labels = Labels({357, 212});
  const auto split = StratifiedSplit(labels, {}, 7);
  ASSERT_TRUE(split.ok()) << split.status();
  std::vector<size_t> all;
  for (const auto* part : {&split->train, &split->validation, &split->test}) {
    EXPECT_TRUE(std::is_sorted(part->begin(), part->end()));
    all.insert(all.end(), part->begin(), part->end());
  }
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), labels.size());
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i);
}

TEST(SplitTest, ClassesAreSplitByTheLargestRemainder) {
  // 357: 249.9, 53.55, 53.55. 212: 148.4, 31.8, 31.8.
  const auto labels = Labels({357, 212});
  const auto split = StratifiedSplit(labels, {.train = 0.7, .validation = 0.15, .test = 0.15}, 0);
  ASSERT_TRUE(split.ok());
  EXPECT_THAT(CountClasses(labels, split->train, 2), ElementsAre(250, 148));
  EXPECT_THAT(CountClasses(labels, split->validation, 2), ElementsAre(54, 32));
  EXPECT_THAT(CountClasses(labels, split->test, 2), ElementsAre(53, 32));
}

TEST(SplitTest, WholeSharesAreNotLostToBinaryFractions) {
  const auto labels = Labels({20, 20});
  const auto split = StratifiedSplit(labels, {.train = 0.7, .validation = 0.15, .test = 0.15}, 0);
  ASSERT_TRUE(split.ok());
  EXPECT_THAT(CountClasses(labels, split->train, 2), ElementsAre(14, 14));
  EXPECT_THAT(CountClasses(labels, split->validation, 2), ElementsAre(3, 3));
  EXPECT_THAT(CountClasses(labels, split->test, 2), ElementsAre(3, 3));
}

TEST(SplitTest, TheSplitOfASeedIsFixedForever) {
  // Worked out once with Python's integers and the generator of ISO C++ [rand.predef], by the
  // algorithm that the headers document.
  const auto split =
      StratifiedSplit(Labels({6, 4}), {.train = 0.5, .validation = 0.25, .test = 0.25}, 42);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(split->train, ElementsAre(1, 3, 5, 8, 9));
  EXPECT_THAT(split->validation, ElementsAre(2, 4, 7));
  EXPECT_THAT(split->test, ElementsAre(0, 6));
}

TEST(SplitTest, AnotherSeedIsAnotherSplit) {
  const auto labels = Labels({50, 50});
  EXPECT_EQ(StratifiedSplit(labels, {}, 1)->test, StratifiedSplit(labels, {}, 1)->test);
  EXPECT_NE(StratifiedSplit(labels, {}, 1)->test, StratifiedSplit(labels, {}, 2)->test);
}

TEST(SplitTest, APartWithFractionZeroIsEmpty) {
  const auto split = StratifiedSplit(Labels({2, 1}), {.train = 1, .validation = 0, .test = 0}, 0);
  ASSERT_TRUE(split.ok());
  EXPECT_THAT(split->train, ElementsAre(0, 1, 2));
  EXPECT_TRUE(split->validation.empty());
  EXPECT_TRUE(split->test.empty());
}

TEST(SplitTest, TooFewSamplesOfAClassNameItAndThePart) {
  const auto split = StratifiedSplit(Labels({10, 2}), {}, 0);
  EXPECT_THAT(std::string(split.status().message()),
              HasSubstr("class 1 has 2 sample(s), so none for the validation part"));
}

TEST(SplitTest, FractionsThatMakeNoSplitAreErrors) {
  const auto labels = Labels({10, 10});
  EXPECT_FALSE(StratifiedSplit({}, {}, 0).ok());
  EXPECT_THAT(std::string(StratifiedSplit(labels, {.train = 0.7, .validation = 0.2, .test = 0.2}, 0)
                              .status()
                              .message()),
              HasSubstr("sum to 1.1; they must sum to 1"));
  EXPECT_THAT(std::string(StratifiedSplit(labels, {.train = 1.2, .validation = -0.2, .test = 0}, 0)
                              .status()
                              .message()),
              HasSubstr("the validation fraction is -0.2"));
  EXPECT_FALSE(StratifiedSplit(labels, {.train = NAN, .validation = 0, .test = 0}, 0).ok());
}

TEST(ShuffleTest, IsAPermutationAndReachesAllOfThemAboutEquallyOften) {
  std::mt19937_64 generator(1);
  std::vector<int> seen(6);
  for (int i = 0; i < 6000; ++i) {
    std::vector<int> values = {0, 1, 2};
    Shuffle(values, generator);
    ++seen[values[0] * 2 + (values[1] > values[2])];
    EXPECT_EQ(values[0] + values[1] + values[2], 3);
  }
  // 1000 each, standard deviation 29; the generator is fixed, so this cannot flake.
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
}

TEST(ShuffleTest, UniformBelowStaysBelowItsBound) {
  std::mt19937_64 generator(1);
  const uint64_t large = (uint64_t{1} << 63) + 1;  // nearly half of all draws are thrown away
  for (int i = 0; i < 1000; ++i) {
    ASSERT_LT(UniformBelow(large, generator), large);
    ASSERT_LT(UniformBelow(3, generator), 3u);
    ASSERT_EQ(UniformBelow(1, generator), 0u);
  }
}

}  // namespace
}  // namespace medfusion
