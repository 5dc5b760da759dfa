#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "medfusion/data/batch_loader.h"
#include "medfusion/data/csv.h"
#include "medfusion/data/standardizer.h"
#include "medfusion/data/tabular_dataset.h"
#include "medfusion/sampler/distributed_sampler.h"

namespace medfusion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const double kNan = std::numeric_limits<double>::quiet_NaN();

Table Read(const char* text, std::vector<std::string> text_columns = {"y"}) {
  return ParseCsv(text, "x.csv", {.text_columns = std::move(text_columns)}).value();
}

std::string Error(const Table& table, const TabularOptions& options) {
  const auto dataset = TabularDataset::Create(table, options);
  EXPECT_FALSE(dataset.ok());
  return std::string(dataset.status().message());
}

TEST(TabularDatasetTest, ThePositiveClassIsOne) {
  const auto dataset = TabularDataset::Create(Read("a,y,b\n1,M,2\n3,B,4\n5,M,6\n"),
                                              {.target = "y", .positive_class = "M"});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->size(), 3u);
  EXPECT_THAT(dataset->labels(), ElementsAre(1, 0, 1));
  EXPECT_THAT(dataset->class_names(), ElementsAre("B", "M"));
  EXPECT_THAT(dataset->feature_names(), ElementsAre("a", "b"));
  EXPECT_TRUE(dataset->features().equal(torch::tensor({{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}})));
}

TEST(TabularDatasetTest, ClassesMayBeListedOrNumbered) {
  const Table texts = Read("a,y\n1,low\n2,high\n3,mid\n");
  const auto listed =
      TabularDataset::Create(texts, {.target = "y", .class_names = {"low", "mid", "high"}});
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_THAT(listed->labels(), ElementsAre(0, 2, 1));

  const auto numbered = TabularDataset::Create(Read("a,y\n1,0\n2,2\n3,1\n", {}), {.target = "y"});
  ASSERT_TRUE(numbered.ok()) << numbered.status();
  EXPECT_THAT(numbered->labels(), ElementsAre(0, 2, 1));
  EXPECT_THAT(numbered->class_names(), ElementsAre("0", "1", "2"));
}

TEST(TabularDatasetTest, FeaturesMayBeChosenAndOrdered) {
  const auto dataset =
      TabularDataset::Create(Read("a,b,y,c\n1,2,M,3\n4,5,B,6\n"),
                             {.target = "y", .positive_class = "M", .features = {"c", "a"}});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_TRUE(dataset->features().equal(torch::tensor({{3.f, 1.f}, {6.f, 4.f}})));
}

TEST(TabularDatasetTest, BadTargetsAreNamed) {
  const Table texts = Read("a,y\n1,M\n2,B\n3,?\n");
  EXPECT_THAT(Error(texts, {.target = "z"}), HasSubstr("no column is named 'z'; there are a, y"));
  EXPECT_THAT(Error(texts, {.target = "y", .positive_class = "M"}),
              HasSubstr("x.csv:4: target 'y' is missing"));
  EXPECT_THAT(Error(texts, {.target = "y"}), HasSubstr("say which value is the positive_class"));
  EXPECT_THAT(Error(texts, {.target = "y", .positive_class = "m"}),
              HasSubstr("positive_class 'm' does not occur in target 'y', which holds B, M"));
  EXPECT_THAT(Error(texts, {.target = "y", .class_names = {"M", "C"}}),
              HasSubstr("x.csv:3: target 'y' holds 'B', which is none of the classes M, C"));
  EXPECT_THAT(Error(texts, {.target = "y", .positive_class = "M", .class_names = {"M", "B"}}),
              HasSubstr("give one"));
  EXPECT_THAT(Error(Read("a,y\n1,M\n2,B\n3,C\n"), {.target = "y", .positive_class = "M"}),
              HasSubstr("holds 3 values (B, C, M)"));
}

TEST(TabularDatasetTest, BadNumbersOfClassesAreNamed) {
  EXPECT_THAT(Error(Read("a,y\n1,0\n2,0.5\n", {}), {.target = "y"}),
              HasSubstr("x.csv:3: target 'y' holds 0.5, which is no class"));
  EXPECT_THAT(Error(Read("a,y\n1,0\n2,-1\n", {}), {.target = "y"}), HasSubstr("holds -1"));
  EXPECT_THAT(Error(Read("a,y\n1,0\n2,1e300\n", {}), {.target = "y"}), HasSubstr("no class"));
  EXPECT_THAT(Error(Read("a,y\n1,0\n2,\n", {}), {.target = "y"}), HasSubstr("is missing"));
  EXPECT_THAT(Error(Read("a,y\n1,0\n2,2\n", {}), {.target = "y"}),
              HasSubstr("class 1 ('1') of target 'y' has no samples"));
  EXPECT_THAT(Error(Read("a,y\n1,0\n2,0\n", {}), {.target = "y"}), HasSubstr("fewer than two"));
  EXPECT_THAT(Error(Read("a,y\n1,0\n2,1\n", {}), {.target = "y", .positive_class = "1"}),
              HasSubstr("was read as numbers"));
}

TEST(TabularDatasetTest, BadFeaturesAreNamed) {
  const Table table = Read("a,b,y\n1,,M\n2,1e39,B\n");
  EXPECT_THAT(Error(table, {.target = "y", .positive_class = "M"}),
              HasSubstr("x.csv:2: feature 'b' is missing"));
  EXPECT_THAT(
      Error(table,
            {.target = "y", .positive_class = "M", .missing = TabularOptions::Missing::kKeep}),
      HasSubstr("x.csv:3: feature 'b' holds 1e+39, which does not fit into float32"));
  EXPECT_THAT(Error(table, {.target = "y", .positive_class = "M", .features = {"a", "a"}}),
              HasSubstr("listed twice"));
  EXPECT_THAT(Error(table, {.target = "y", .positive_class = "M", .features = {"y"}}),
              HasSubstr("is the target"));
  EXPECT_THAT(Error(Read("y\nM\nB\n"), {.target = "y", .positive_class = "M"}),
              HasSubstr("no column of numbers"));
}

TEST(TabularDatasetTest, GetCopiesTheRowsAskedFor) {
  const auto dataset =
      TabularDataset::Create(Read("a,y\n1,M\n2,B\n3,M\n"), {.target = "y", .positive_class = "M"});
  const Batch batch = dataset->Get(std::vector<size_t>{2, 1, 2});
  EXPECT_TRUE(batch.features.equal(torch::tensor({{3.f}, {2.f}, {3.f}})));
  EXPECT_TRUE(batch.targets.equal(torch::tensor({1, 0, 1}, torch::kLong)));
  EXPECT_THAT(batch.indices, ElementsAre(2, 1, 2));
  batch.features.zero_();
  EXPECT_EQ(dataset->features()[2].item<float>(), 3);
  EXPECT_EQ(dataset->Get({}).features.sizes(), (std::vector<int64_t>{0, 1}));
  EXPECT_THROW(dataset->Get(std::vector<size_t>{3}), std::out_of_range);
}

TEST(BatchLoaderTest, YieldsWhatTheSourceSays) {
  const auto dataset =
      TabularDataset::Create(Read("a,y\n1,M\n2,B\n3,M\n"), {.target = "y", .positive_class = "M"});
  size_t next = 0;
  const auto source = [&](size_t batch_size) -> std::optional<std::vector<size_t>> {
    std::vector<size_t> indices;
    while (next < 3 && indices.size() < batch_size) indices.push_back(next++);
    if (indices.empty()) return std::nullopt;
    return indices;
  };
  BatchLoader loader(source, *dataset, 2);
  EXPECT_THAT(loader.Next()->indices, ElementsAre(0, 1));
  EXPECT_THAT(loader.Next()->indices, ElementsAre(2));
  EXPECT_FALSE(loader.Next().has_value());
  EXPECT_THROW(BatchLoader(source, *dataset, 0), std::invalid_argument);
  EXPECT_THROW(BatchLoader(nullptr, *dataset, 1), std::invalid_argument);
}

TEST(BatchLoaderTest, ReadsEachRanksShareFromADistributedSampler) {
  const auto dataset = TabularDataset::Create(Read("a,y\n1,M\n2,B\n3,M\n4,B\n5,M\n6,B\n"),
                                              {.target = "y", .positive_class = "M"});
  std::vector<size_t> seen;
  for (const int64_t rank : {0, 1}) {
    DistributedSampler sampler(static_cast<int64_t>(dataset->size()), 2, rank);
    sampler.SetEpoch(1);
    BatchLoader loader([&](size_t batch_size) { return sampler.Next(batch_size); }, *dataset, 2);
    size_t batches = 0;
    while (const auto batch = loader.Next()) {
      ++batches;
      for (size_t i = 0; i < batch->indices.size(); ++i) {
        EXPECT_EQ(batch->features[i][0].item<float>(), batch->indices[i] + 1);
      }
      seen.insert(seen.end(), batch->indices.begin(), batch->indices.end());
    }
    EXPECT_EQ(batches, 2u);
  }
  EXPECT_THAT(seen, UnorderedElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(StandardizerTest, UsesTheStatisticsOfTheTrainingRowsAlone) {
  const at::Tensor x = torch::tensor({{1., 10.}, {3., 30.}, {1000., -1000.}});
  const auto standardizer = Standardizer::Fit(x, std::vector<size_t>{0, 1});
  ASSERT_TRUE(standardizer.ok()) << standardizer.status();
  EXPECT_TRUE(standardizer->mean().equal(torch::tensor({2., 20.}, torch::kDouble)));
  EXPECT_TRUE(standardizer->std().equal(torch::tensor({1., 10.}, torch::kDouble)));
  EXPECT_TRUE(standardizer->Apply(x).equal(torch::tensor({{-1., -1.}, {1., 1.}, {998., -102.}})));
  EXPECT_TRUE(standardizer->constant_columns().empty());
}

TEST(StandardizerTest, ConstantColumnsAreListedAndNotScaled) {
  // 0.1f three times: a mean in float32 would differ from its values.
  const at::Tensor x = torch::tensor({{0.1f, 1.f}, {0.1f, 2.f}, {0.1f, 3.f}});
  const auto standardizer = Standardizer::Fit(x, std::vector<size_t>{0, 1, 2});
  EXPECT_THAT(standardizer->constant_columns(), ElementsAre(0));
  EXPECT_EQ(standardizer->std()[0].item<double>(), 1);
  EXPECT_EQ(standardizer->Apply(x).select(1, 0).abs().max().item<float>(), 0);
}

TEST(StandardizerTest, MissingValuesBecomeTheTrainingMean) {
  const at::Tensor x = torch::tensor({{1., kNan}, {kNan, kNan}, {3., kNan}}, torch::kDouble);
  const auto standardizer = Standardizer::Fit(x, std::vector<size_t>{0, 1, 2});
  EXPECT_THAT(standardizer->constant_columns(), ElementsAre(1));
  EXPECT_TRUE(
      standardizer->Apply(x).equal(torch::tensor({{-1., 0.}, {0., 0.}, {1., 0.}}, torch::kDouble)));
}

TEST(StandardizerTest, StateRestoresIt) {
  const at::Tensor x = torch::rand({5, 3});
  const auto before = Standardizer::Fit(x, std::vector<size_t>{0, 2, 4});
  const auto after = Standardizer::FromState(before->state());
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(after->Apply(x).equal(before->Apply(x)));
}

TEST(StandardizerTest, BrokenStatesAreErrors) {
  const at::Tensor one = torch::ones({2}, torch::kDouble);
  EXPECT_THAT(std::string(Standardizer::FromState({{"mean", one}}).status().message()),
              HasSubstr("no 'std'"));
  EXPECT_FALSE(Standardizer::FromState({{"mean", one}, {"std", torch::ones({3})}}).ok());
  EXPECT_FALSE(Standardizer::FromState({{"mean", one}, {"std", torch::zeros({2})}}).ok());
  EXPECT_FALSE(Standardizer::FromState({{"mean", one * kNan}, {"std", one}}).ok());
}

TEST(StandardizerTest, WhatCannotBeFittedIsNamed) {
  const at::Tensor x = torch::ones({2, 3});
  EXPECT_FALSE(Standardizer::Fit(x, {}).ok());
  EXPECT_THAT(std::string(Standardizer::Fit(x, std::vector<size_t>{2}).status().message()),
              HasSubstr("row 2 of 2"));
  EXPECT_THAT(
      std::string(Standardizer::Fit(x.to(torch::kLong), std::vector<size_t>{0}).status().message()),
      HasSubstr("[2, 3] Long cpu; expected"));
  x[1][2] = INFINITY;
  EXPECT_THAT(std::string(Standardizer::Fit(x, std::vector<size_t>{0, 1}).status().message()),
              HasSubstr("row 1, column 2 is infinite"));
  EXPECT_THROW(
      Standardizer::Fit(torch::rand({2, 3}), std::vector<size_t>{0})->Apply(torch::rand({2, 4})),
      c10::Error);
}

}  // namespace
}  // namespace medfusion
