#include "medfusion/metrics/dict_reduction.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "medfusion/metrics/dict_message.h"

namespace medfusion {
namespace {

constexpr int64_t kBig = (int64_t{1} << 53) + 1;  // no double is this number

ReduceDictOptions By(MetricReduction reduction) { return {.reduction = reduction}; }

// The result of rank 0; the ranks' options may differ.
absl::StatusOr<MetricMap> Reduce(const std::vector<MetricMap>& ranks,
                                 const std::vector<ReduceDictOptions>& options) {
  std::vector<std::string> messages;
  for (size_t i = 0; i < ranks.size(); ++i) {
    messages.push_back(EncodeDict(ranks[i], options[i % options.size()]));
  }
  return ReduceEncodedDicts(messages, ranks[0]);
}

MetricMap Reduced(const std::vector<MetricMap>& ranks, const ReduceDictOptions& options = {}) {
  return Reduce(ranks, {options}).value();
}

void ExpectError(const absl::StatusOr<MetricMap>& result, const std::string& text,
                 absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  EXPECT_EQ(result.status().code(), code);
  EXPECT_NE(result.status().message().find(text), std::string::npos) << result.status();
}

TEST(DictReductionTest, AveragesTheGuidesExample) {
  const MetricMap average = Reduced({{{"loss", torch::tensor(0.5)}, {"acc", torch::tensor(0.9)}},
                                     {{"acc", torch::tensor(0.7)}, {"loss", torch::tensor(0.25)}}});
  EXPECT_EQ(average.size(), 2u);
  EXPECT_EQ(average.at("loss").AsDouble(), 0.375);
  EXPECT_EQ(average.at("acc").AsTensor().scalar_type(), torch::kFloat);
  EXPECT_FLOAT_EQ(average.at("acc").AsTensor().item<float>(), 0.8f);
}

TEST(DictReductionTest, TheAverageOfEqualValuesIsThatValue) {
  for (size_t ranks = 1; ranks <= 12; ++ranks) {
    const MetricMap average = Reduced(std::vector<MetricMap>(ranks, {{"x", 0.1}}));
    EXPECT_EQ(average.at("x").AsDouble(), 0.1);
  }
}

TEST(DictReductionTest, AveragesOfIntegersAreNotTruncated) {
  const MetricMap average =
      Reduced({{{"n", 1}, {"t", torch::tensor({1, 2})}}, {{"n", 2}, {"t", torch::tensor({2, 2})}}});
  EXPECT_TRUE(average.at("n").is_double());
  EXPECT_EQ(average.at("n").AsDouble(), 1.5);
  EXPECT_TRUE(average.at("t").AsTensor().equal(torch::tensor({1.5, 2.0}, torch::kDouble)));
}

TEST(DictReductionTest, SumsOfIntegersAreExactBeyondTheBitsOfADouble) {
  const std::vector<MetricMap> ranks = {{{"n", kBig}, {"t", torch::tensor({kBig})}},
                                        {{"n", 2}, {"t", torch::tensor({int64_t{2}})}}};
  const MetricMap sum = Reduced(ranks, By(MetricReduction::kSum));
  EXPECT_EQ(sum.at("n").AsInt64(), kBig + 2);
  EXPECT_EQ(sum.at("t").AsInt64(), kBig + 2);
  // (2^53 + 1 + 2) / 2 is half of an even number that a double cannot reach by rounding its parts.
  EXPECT_EQ(Reduced(ranks).at("n").AsDouble(), 4503599627370497.5);
}

TEST(DictReductionTest, ASumPastSixtyFourBitsIsAnError) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  ExpectError(Reduce({{{"n", most}}, {{"n", 1}}}, {By(MetricReduction::kSum)}),
              "\"n\": the sum passes 64 bits", absl::StatusCode::kOutOfRange);
}

TEST(DictReductionTest, ReducesByKey) {
  ReduceDictOptions options;
  options.reductions = {{"samples", MetricReduction::kSum},
                        {"norm", MetricReduction::kMax},
                        {"lowest", MetricReduction::kMin}};
  const MetricMap result = Reduced({{{"loss", 1.0}, {"samples", 3}, {"norm", 2.5f}, {"lowest", -4}},
                                    {{"loss", 2.0}, {"samples", 4}, {"norm", 1.5f}, {"lowest", 7}}},
                                   options);
  EXPECT_EQ(result.at("loss").AsDouble(), 1.5);
  EXPECT_EQ(result.at("samples").AsInt64(), 7);
  EXPECT_EQ(result.at("norm").AsDouble(), 2.5);
  EXPECT_EQ(result.at("lowest").AsInt64(), -4);
}

TEST(DictReductionTest, WeighsByRankAndIgnoresRanksWithoutSamples) {
  const std::vector<MetricMap> ranks = {{{"loss", 1.0}, {"n", kBig}},
                                        {{"loss", 5.0}, {"n", kBig}},
                                        {{"loss", std::nan("")}, {"n", 0}}};
  const MetricMap average =
      Reduce(ranks, {{.weight = 3.0}, {.weight = 1.0}, {.weight = 0.0}}).value();
  EXPECT_EQ(average.at("loss").AsDouble(), 2.0);
  EXPECT_EQ(average.at("n").AsDouble(), static_cast<double>(kBig));
}

TEST(DictReductionTest, MeansOverNoSamplesAtAllAreAnErrorAndSumsAreNot) {
  ReduceDictOptions nobody = {.weight = 0.0};
  ExpectError(Reduce({{{"loss", 1.0}}, {{"loss", 2.0}}}, {nobody}),
              "the mean of \"loss\" is undefined: every rank's weight is 0",
              absl::StatusCode::kFailedPrecondition);
  nobody.reduction = MetricReduction::kSum;
  EXPECT_EQ(Reduced({{{"loss", 1.0}}, {{"loss", 2.0}}}, nobody).at("loss").AsDouble(), 3.0);
}

TEST(DictReductionTest, NanPropagatesEverywhere) {
  for (const MetricReduction reduction : {MetricReduction::kMean, MetricReduction::kSum,
                                          MetricReduction::kMin, MetricReduction::kMax}) {
    for (const bool first : {true, false}) {
      const MetricMap bad = {{"x", std::nan("")}};
      const MetricMap good = {{"x", 1.0}};
      const MetricMap result =
          Reduced({first ? bad : good, good, first ? good : bad}, By(reduction));
      EXPECT_TRUE(std::isnan(result.at("x").AsDouble()));
    }
  }
}

TEST(DictReductionTest, TensorsKeepShapeAndFloatingType) {
  const at::Tensor a = torch::arange(6, torch::kFloat).reshape({2, 3});
  const MetricMap sum = Reduced({{{"m", a.t()}, {"h", torch::tensor({1.0}).to(torch::kBFloat16)}},
                                 {{"m", a.t()}, {"h", torch::tensor({2.0}).to(torch::kBFloat16)}}},
                                By(MetricReduction::kSum));
  EXPECT_TRUE(sum.at("m").AsTensor().equal(a.t() * 2));
  EXPECT_EQ(sum.at("h").AsTensor().scalar_type(), torch::kBFloat16);
  EXPECT_EQ(sum.at("h").AsDouble(), 3.0);
}

TEST(DictReductionTest, IntegerTensorsGiveIntegerSumsAndTheirOwnTypeOfExtremes) {
  const std::vector<MetricMap> ranks = {
      {{"b", torch::tensor({true, false})}, {"u", torch::tensor({200}, torch::kByte)}},
      {{"b", torch::tensor({true, true})}, {"u", torch::tensor({100}, torch::kByte)}}};
  const MetricMap sum = Reduced(ranks, By(MetricReduction::kSum));
  EXPECT_TRUE(sum.at("b").AsTensor().equal(torch::tensor({2, 1})));
  EXPECT_EQ(sum.at("u").AsInt64(), 300);
  const MetricMap least = Reduced(ranks, By(MetricReduction::kMin));
  EXPECT_TRUE(least.at("b").AsTensor().equal(torch::tensor({true, false})));
  EXPECT_EQ(least.at("u").AsTensor().scalar_type(), torch::kByte);
}

TEST(DictReductionTest, EmptyDictionariesAndEmptyTensorsAreFine) {
  EXPECT_TRUE(Reduced({{}, {}}).empty());
  const MetricMap result = Reduced({{{"x", torch::empty({0, 3})}}, {{"x", torch::empty({0, 3})}}});
  EXPECT_EQ(result.at("x").AsTensor().sizes(), at::IntArrayRef({0, 3}));
}

TEST(DictReductionTest, DifferentKeysTypesAndShapesAreNamedWithTheirRanks) {
  ExpectError(
      Reduce({{{"loss", 1.0}, {"acc", 1.0}}, {{"loss", 1.0}}, {{"loss", 1.0}, {"acc", 1.0}}}, {{}}),
      "ReduceDict: the ranks' metrics differ: \"acc\" is mean of double on ranks 0, 2, "
      "missing on rank 1. Every rank must pass the same keys, types and shapes");
  ExpectError(Reduce({{}, {{"loss", 1.0}}}, {{}}),
              "\"loss\" is mean of double on rank 1, missing on rank 0");
  ExpectError(Reduce({{{"n", 1}}, {{"n", 1.0}}}, {{}}),
              "\"n\" is mean of double on rank 1, mean of int64 on rank 0");
  ExpectError(Reduce({{{"m", torch::zeros({2, 3})}}, {{"m", torch::zeros({3, 2})}}}, {{}}),
              "\"m\" is mean of Float[2, 3] on rank 0, mean of Float[3, 2] on rank 1");
  ExpectError(Reduce({{{"n", 1}}, {{"n", 1}}}, {{}, By(MetricReduction::kSum)}),
              "mean of int64 on rank 0, sum of int64 on rank 1");
}

TEST(DictReductionTest, ALongListOfDifferencesIsCut) {
  MetricMap many;
  for (int i = 0; i < 50; ++i) many["key" + std::to_string(i)] = 1.0;
  ExpectError(Reduce({many, {}}, {{}}), "; and 30 more. Every rank");
}

TEST(DictReductionTest, WhatIsWrongOnOneRankIsSaidOnAll) {
  const std::vector<MetricMap> ranks = {{{"x", 1.0}}, {{"x", at::Tensor()}}, {{"x", 1.0}}};
  ExpectError(Reduce(ranks, {{}}), "ReduceDict: rank 1: \"x\" is an undefined tensor");
  ExpectError(Reduce({{{"x", torch::zeros({1}, torch::kComplexFloat)}}}, {{}}),
              "rank 0: \"x\" is a tensor of ComplexFloat; expected real numbers");
  ExpectError(Reduce({{{"x", 1.0}}, {{"x", 1.0}}}, {{}, {.weight = -2.0}}),
              "rank 1: ReduceDictOptions::weight is -2; expected a finite number of at least 0");
  ReduceDictOptions misspelt;
  misspelt.reductions = {{"los", MetricReduction::kSum}};
  ExpectError(Reduce({{{"loss", 1.0}}}, {misspelt}),
              "ReduceDictOptions::reductions names \"los\", which is no metric");
}

TEST(DictReductionTest, AMessageThatIsCutShortIsAnError) {
  const std::string message = EncodeDict({{"x", torch::zeros({4})}}, {});
  for (size_t length = 0; length < message.size(); ++length) {
    EXPECT_FALSE(DecodeDict(message.substr(0, length)).ok()) << length;
  }
  EXPECT_TRUE(DecodeDict(message).ok());
}

TEST(MetricValueTest, ConvertsWithoutSurprises) {
  EXPECT_TRUE(MetricValue(1.5f).is_double());
  EXPECT_TRUE(MetricValue(size_t{3}).is_int64());
  EXPECT_EQ(MetricValue(true).AsInt64(), 1);
  const uint64_t beyond = std::numeric_limits<uint64_t>::max();
  EXPECT_THROW(MetricValue{beyond}, std::out_of_range);
  EXPECT_THROW(MetricValue(1.5).AsInt64(), std::bad_variant_access);
  EXPECT_THROW(MetricValue(torch::tensor(1.5)).AsInt64(), c10::Error);
  EXPECT_THROW(MetricValue(torch::tensor({1, 2})).AsDouble(), std::exception);
  EXPECT_EQ(MetricValue(kBig).AsTensor().item<int64_t>(), kBig);
}

}  // namespace
}  // namespace medfusion
