#include "medfusion/metrics/auroc.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/metrics/spread.h"

namespace medfusion {
namespace {

using ::medfusion::testing::MergeSpread;
using ::medfusion::testing::Rows;

// By the definition: every pair looked at. Twice the count is whole, so that nothing is rounded
// before the division.
double NaiveAuroc(const at::Tensor& scores, const at::Tensor& labels) {
  int64_t twice = 0;
  int64_t pairs = 0;
  for (int64_t i = 0; i < scores.numel(); ++i) {
    for (int64_t j = 0; j < scores.numel(); ++j) {
      if (labels[i].item<int64_t>() != 1 || labels[j].item<int64_t>() != 0) continue;
      const double positive = scores[i].item<double>();
      const double negative = scores[j].item<double>();
      ++pairs;
      twice += positive > negative ? 2 : positive == negative ? 1 : 0;
    }
  }
  return static_cast<double>(twice) / static_cast<double>(2 * pairs);
}

TEST(AurocTest, GivesTheAreasOfHandCountedPairs) {
  const struct {
    std::vector<double> scores;
    std::vector<int64_t> labels;
    double area;
  } kCases[] = {
      // The example of sklearn.metrics.roc_auc_score: of the pairs (0.35, 0.1) (0.35, 0.4) (0.8,
      // 0.1) (0.8, 0.4) three
      // of four are in order.
      {{0.1, 0.4, 0.35, 0.8}, {0, 0, 1, 1}, 0.75},
      {{0.1, 0.2, 0.8, 0.9}, {0, 0, 1, 1}, 1.0},
      {{0.1, 0.2, 0.8, 0.9}, {1, 1, 0, 0}, 0.0},
      // All tied: half.
      {{0.5, 0.5, 0.5}, {0, 1, 0}, 0.5},
      // (0.5, 0.5) is a tie, (0.5, 0.2) and (0.7, both) are in order: 3.5 of 4.
      {{0.5, 0.7, 0.5, 0.2}, {1, 1, 0, 0}, 0.875},
      // The two zeros are one score.
      {{0.0, -0.0}, {1, 0}, 0.5},
  };
  for (const auto& test : kCases) {
    Auroc metric;
    metric.Update(torch::tensor(test.scores), torch::tensor(test.labels));
    EXPECT_EQ(metric.Value().value(), test.area);
  }
}

TEST(AurocTest, ReadsTwoColumnsAsTheirKindSays) {
  const at::Tensor logits = torch::tensor({{9.0, 9.5}, {1.0, 1.75}, {-4.0, 0.0}, {3.0, 1.0}});
  const at::Tensor labels = torch::tensor({0, 1, 1, 0});
  Auroc of_logits({.kind = ScoreKind::kLogit});
  of_logits.Update(logits, labels);
  EXPECT_EQ(of_logits.Value().value(), 1.0);  // differences 0.5, 0.75, 4, -2
  Auroc of_probabilities;
  of_probabilities.Update(logits.softmax(1), labels);
  EXPECT_EQ(of_probabilities.Value(), of_logits.Value());
}

TEST(AurocTest, LogitsThatTheSoftmaxCannotTellApartStillRank) {
  const at::Tensor logits = torch::tensor({{0.0f, 200.0f}, {0.0f, 300.0f}});
  const at::Tensor labels = torch::tensor({0, 1});
  Auroc of_logits({.kind = ScoreKind::kLogit});
  of_logits.Update(logits, labels);
  EXPECT_EQ(of_logits.Value().value(), 1.0);
  Auroc of_probabilities;
  of_probabilities.Update(logits.softmax(1), labels);
  EXPECT_EQ(of_probabilities.Value().value(), 0.5);  // both are 1.0f
}

TEST(AurocTest, InfiniteLogitsAreOrdered) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Auroc metric({.kind = ScoreKind::kLogit});
  metric.Update(torch::tensor({kInfinity, 3.0, -kInfinity}), torch::tensor({1, 1, 0}));
  EXPECT_EQ(metric.Value().value(), 1.0);
}

TEST(AurocTest, OneClassAloneIsUndefinedAndSaysWhich) {
  Auroc metric;
  EXPECT_EQ(metric.Value().reason(), "no samples");
  metric.Update(torch::tensor({0.5, 0.7}), torch::tensor({1, 1}));
  EXPECT_EQ(metric.Value().reason(), "no negative labels");
  EXPECT_FALSE(metric.Value().defined());
  metric.Reset();
  metric.Update(torch::tensor({0.5}), torch::tensor({0}));
  EXPECT_EQ(metric.Value().reason(), "no positive labels");
}

TEST(AurocTest, NanScoresAreRefusedAndCounted) {
  Auroc metric({.kind = ScoreKind::kLogit});
  metric.Update(torch::tensor({0.5, std::nan(""), 0.2}), torch::tensor({1, 1, 0}));
  EXPECT_NE(metric.status().message().find("1 of 3 scores in this update are NaN"),
            std::string::npos)
      << metric.status();
  EXPECT_EQ(metric.Value().reason(), "no samples");
  Auroc single;
  single.Update(std::nan(""), true);
  EXPECT_FALSE(single.status().ok());
}

TEST(AurocTest, EqualsTheDefinitionHoweverTheSamplesAreSpread) {
  std::mt19937 random(3);
  torch::manual_seed(3);
  for (int trial = 0; trial < 60; ++trial) {
    const int64_t samples = 2 + static_cast<int64_t>(random() % 40);
    // Few distinct scores in every second trial, for many ties.
    at::Tensor scores = torch::rand({samples}, torch::kDouble);
    if (trial % 2 == 0) scores = scores.mul(6).floor().div(6);
    at::Tensor labels = torch::randint(0, 2, {samples});
    labels[0] = 0;
    labels[1] = 1;
    const Auroc merged = MergeSpread(Auroc(), samples, 1 + trial % 4, random,
                                     [&](Auroc& local, const std::vector<int64_t>& batch) {
                                       local.Update(Rows(scores, batch), Rows(labels, batch));
                                     });
    EXPECT_EQ(merged.Value().value(), NaiveAuroc(scores, labels));
  }
}

TEST(AurocTest, AStateIsCheckedBeforeItIsMerged) {
  Auroc metric;
  metric.Update(torch::tensor({0.1, 0.9}), torch::tensor({0, 1}));
  MetricState state = metric.State();
  EXPECT_FALSE(Auroc({.kind = ScoreKind::kLogit}).Merge(state).ok());
  state.integers[1] = 3;  // more positives than scores
  EXPECT_FALSE(metric.Merge(state).ok());
  state.integers[1] = -1;
  EXPECT_FALSE(metric.Merge(state).ok());
  EXPECT_EQ(metric.Value().value(), 1.0);
}

TEST(MulticlassAurocTest, IsEachClassAgainstTheRest) {
  std::mt19937 random(4);
  torch::manual_seed(4);
  const at::Tensor scores = torch::rand({50, 3}).mul(10).floor();
  const at::Tensor labels = torch::randint(0, 3, {50});
  const MulticlassAuroc merged =
      MergeSpread(MulticlassAuroc(3), 50, 4, random,
                  [&](MulticlassAuroc& local, const std::vector<int64_t>& batch) {
                    local.Update(Rows(scores, batch), Rows(labels, batch));
                  });
  double sum = 0.0;
  for (int64_t i = 0; i < 3; ++i) {
    const double expected = NaiveAuroc(scores.select(1, i), labels.eq(i).to(torch::kLong));
    EXPECT_EQ(merged.Value(i).value(), expected);
    sum += expected;
  }
  EXPECT_NEAR(merged.MacroValue().value(), sum / 3.0, 1e-15);
  EXPECT_EQ(merged.Results().size(), 4u);
}

TEST(MulticlassAurocTest, AnAbsentClassLeavesTheMeanUndefined) {
  MulticlassAuroc metric(3);
  metric.Update(torch::rand({2, 3}), torch::tensor({0, 2}));
  EXPECT_TRUE(metric.Value(0).defined());
  EXPECT_EQ(metric.MacroValue().reason(), "class 1: no positive labels");
}

TEST(MulticlassAurocTest, RefusesWhatItCannotRead) {
  MulticlassAuroc metric(3);
  metric.Update(torch::rand({2, 4}), torch::tensor({0, 2}));
  EXPECT_NE(metric.status().message().find("scores are [2, 4]; expected [N, 3]"), std::string::npos)
      << metric.status();
  EXPECT_THROW(MulticlassAuroc(1), std::invalid_argument);
  MetricState state = MulticlassAuroc(3).State();
  state.integers[2] = 1;  // a score that is not there
  EXPECT_FALSE(metric.Merge(state).ok());
}

}  // namespace
}  // namespace medfusion
