#include "medfusion/data/feature_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace medfusion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kNames = {"mean_a", "age", "mean_b", "worst_a"};

std::string Error(const std::string& flag) {
  const auto specs = ParseFeatureGroups(flag);
  if (!specs.ok()) return std::string(specs.status().message());
  const auto groups = SelectFeatureGroups(kNames, *specs);
  EXPECT_FALSE(groups.ok());
  return std::string(groups.status().message());
}

TEST(FeatureGroupsTest, PrefixesAndNamesFindTheirColumns) {
  const auto specs = ParseFeatureGroups("mean:mean_*;rest:worst_a,age");
  ASSERT_TRUE(specs.ok()) << specs.status();
  const auto groups = SelectFeatureGroups(kNames, *specs);
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ((*groups)[0].name, "mean");
  EXPECT_EQ((*groups)[1].name, "rest");
  EXPECT_THAT(GroupColumns(*groups), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(FeatureGroupsTest, AStarAloneTakesEverything) {
  const auto groups = SelectFeatureGroups(kNames, std::vector<FeatureGroupSpec>{{"all", {"*"}}});
  ASSERT_TRUE(groups.ok());
  EXPECT_THAT(groups->front().columns, ElementsAre(0, 1, 2, 3));
}

TEST(FeatureGroupsTest, GroupsThatDoNotPartTheFeaturesNameTheCulprit) {
  EXPECT_THAT(Error("mean:mean_*;rest:worst_*"), HasSubstr("no group takes age"));
  EXPECT_THAT(Error("a:*;b:age"), HasSubstr("'age' matches twice, in 'a' and in 'b'"));
  EXPECT_THAT(Error("a:mean_*,mean_a;b:age,worst_a"), HasSubstr("'mean_a' matches twice"));
  EXPECT_THAT(Error("a:*;b:sd_*"), HasSubstr("'sd_*' of group 'b' matches none of mean_a, age"));
  EXPECT_THAT(Error("a:mean_*;a:age,worst_a"), HasSubstr("two groups are named 'a'"));
  EXPECT_FALSE(SelectFeatureGroups(kNames, {}).ok());
  EXPECT_FALSE(SelectFeatureGroups(kNames, std::vector<FeatureGroupSpec>{{"a", {}}}).ok());
}

TEST(FeatureGroupsTest, TextsThatAreNoGroupsAreErrors) {
  for (const char* bad : {"", "mean_*", "a:b;", ":b", "a:", "a:b:c"}) {
    EXPECT_THAT(Error(bad), HasSubstr("expected name:column,prefix_*")) << bad;
  }
}

}  // namespace
}  // namespace medfusion
