#include "medfusion/metrics/binary_classification.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <random>

#include "tests/metrics/spread.h"

namespace medfusion {
namespace {

using ::medfusion::testing::MergeSpread;
using ::medfusion::testing::Rows;

// Ten samples by hand, at 0.5: predicted positive are 0.9 0.8 0.7 0.6, of which 0.7 is wrong; of
// those predicted negative, 0.4 and 0.3 are positive.
const std::vector<double> kScores = {0.9, 0.8, 0.7, 0.6, 0.4, 0.3, 0.2, 0.2, 0.1, 0.0};
const std::vector<int64_t> kLabels = {1, 1, 0, 1, 1, 1, 0, 0, 0, 0};

TEST(BinaryClassificationTest, GivesTheRatesOfAHandCountedTable) {
  BinaryClassification metric;
  metric.Update(torch::tensor(kScores), torch::tensor(kLabels));
  EXPECT_EQ(metric.true_positives(), 3);
  EXPECT_EQ(metric.false_positives(), 1);
  EXPECT_EQ(metric.true_negatives(), 4);
  EXPECT_EQ(metric.false_negatives(), 2);
  EXPECT_EQ(metric.Accuracy().value(), 7.0 / 10.0);
  EXPECT_EQ(metric.Sensitivity().value(), 3.0 / 5.0);
  EXPECT_EQ(metric.Specificity().value(), 4.0 / 5.0);
  EXPECT_EQ(metric.Precision().value(), 3.0 / 4.0);
  EXPECT_EQ(metric.F1().value(), 6.0 / 9.0);
}

TEST(BinaryClassificationTest, AScoreAtTheThresholdIsNegativeAsArgmaxHasIt) {
  BinaryClassification probability;
  probability.Update(torch::tensor({0.5, std::nextafter(0.5, 1.0)}, torch::kDouble),
                     torch::tensor({1, 1}));
  EXPECT_EQ(probability.true_positives(), 1);
  BinaryClassification logits({.kind = ScoreKind::kLogit});
  const at::Tensor pairs = torch::tensor({{2.0, 2.0}, {1.0, 3.0}, {3.0, 1.0}});
  logits.Update(pairs, torch::tensor({1, 1, 1}));
  EXPECT_EQ(logits.true_positives(), pairs.argmax(1).sum().item<int64_t>());
}

TEST(BinaryClassificationTest, AcceptsTheShapesAndTypesOfModels) {
  const at::Tensor scores = torch::tensor({0.9f, 0.2f});
  for (const at::Tensor& shaped :
       {scores, scores.unsqueeze(1), torch::stack({1.0 - scores, scores}, 1),
        scores.to(torch::kDouble), scores.to(torch::kBFloat16), scores.clone().requires_grad_()}) {
    for (const at::Tensor& labels :
         {torch::tensor({1, 0}), torch::tensor({true, false}), torch::tensor({{1.0f}, {0.0f}})}) {
      BinaryClassification metric;
      metric.Update(shaped, labels);
      EXPECT_TRUE(metric.status().ok()) << metric.status();
      EXPECT_EQ(metric.Accuracy().value(), 1.0);
    }
  }
}

TEST(BinaryClassificationTest, AThresholdOnLogitsMeansTheSameProbability) {
  const at::Tensor logits = torch::linspace(-5.0, 5.0, 97, torch::kDouble);
  const at::Tensor labels = torch::ones({97}, torch::kLong);
  BinaryClassification by_logit({.kind = ScoreKind::kLogit, .threshold = 0.2});
  BinaryClassification by_probability({.threshold = 0.2});
  by_logit.Update(logits, labels);
  by_probability.Update(logits.sigmoid(), labels);
  EXPECT_EQ(by_logit.true_positives(), by_probability.true_positives());
  EXPECT_NE(by_logit.true_positives(), logits.gt(0).sum().item<int64_t>());
}

TEST(BinaryClassificationTest, OneClassAloneLeavesTheOthersRateUndefined) {
  BinaryClassification metric;
  EXPECT_EQ(metric.Accuracy().reason(), "no samples");
  metric.Update(torch::tensor({0.1, 0.2}), torch::tensor({0, 0}));
  EXPECT_EQ(metric.Accuracy().value(), 1.0);
  EXPECT_EQ(metric.Specificity().value(), 1.0);
  EXPECT_EQ(metric.Sensitivity().reason(), "no positive labels");
  EXPECT_EQ(metric.Precision().reason(), "no positive predictions");
  EXPECT_EQ(metric.F1().ToString(), "undefined (no positive labels or predictions)");
  metric.Reset();
  metric.Update(torch::tensor({0.9}), torch::tensor({1}));
  EXPECT_EQ(metric.Specificity().reason(), "no negative labels");
  EXPECT_EQ(metric.Sensitivity().value(), 1.0);
}

TEST(BinaryClassificationTest, AnyUpdateThatCannotBeReadIsRefusedWhole) {
  const double nan = std::nan("");
  const struct {
    at::Tensor scores;
    at::Tensor labels;
    std::string message;
  } kCases[] = {
      {torch::tensor({0.1, nan, nan}), torch::tensor({0, 1, 1}),
       "2 of 3 scores in this update are NaN"},
      {torch::tensor({0.1, 7.25}), torch::tensor({0, 1}), "score 1 of this update is 7.25"},
      {torch::tensor({0.1, 0.2}), torch::tensor({0, 2}),
       "label 1 of this update is 2; expected a whole number in 0..1"},
      {torch::tensor({0.1, 0.2}), torch::tensor({0.0, 0.5}), "label 1 of this update is 0.5"},
      {torch::tensor({0.1, 0.2}), torch::tensor({1}), "2 scores and 1 labels"},
      {torch::zeros({2, 3}), torch::tensor({1, 0}),
       "scores are Float[2, 3]; expected [N], [N, 1] or [N, 2]"},
      {at::Tensor(), torch::tensor({1, 0}), "scores are undefined"},
      {torch::tensor({0.1, 0.2}), at::Tensor(), "labels are undefined"},
  };
  for (const auto& test : kCases) {
    BinaryClassification metric;
    metric.Update(test.scores, test.labels);
    EXPECT_EQ(metric.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(metric.status().message().find(test.message), std::string::npos) << metric.status();
    EXPECT_EQ(metric.Accuracy().reason(), "no samples");
  }
}

TEST(BinaryClassificationTest, TheFirstRefusalIsKeptAndResetForgetsIt) {
  BinaryClassification metric;
  metric.Update(torch::tensor({0.1}), torch::tensor({5}));
  metric.Update(torch::tensor({0.1}), torch::tensor({6}));
  EXPECT_EQ(
      metric.status().message(),
      "BinaryClassification(probability > 0.5): label 0 of this update is 5; expected a whole "
      "number in 0..1 (1 further updates were refused)");
  metric.Reset();
  EXPECT_TRUE(metric.status().ok());
}

TEST(BinaryClassificationTest, AThresholdThatIsNoProbabilityIsAnError) {
  EXPECT_THROW(BinaryClassification({.threshold = 1.0}), std::invalid_argument);
  EXPECT_THROW(BinaryClassification({.threshold = std::nan("")}), std::invalid_argument);
}

TEST(BinaryClassificationTest, EqualsOneProcessHoweverTheSamplesAreSpread) {
  std::mt19937 random(2);
  torch::manual_seed(2);
  for (int trial = 0; trial < 60; ++trial) {
    const int64_t samples = static_cast<int64_t>(random() % 60);
    const at::Tensor scores = torch::rand({samples});
    const at::Tensor labels = torch::randint(0, 2, {samples});
    const at::Tensor predicted = scores.gt(0.3);
    const auto count = [](const at::Tensor& mask) { return mask.sum().item<int64_t>(); };
    const BinaryClassification merged =
        MergeSpread(BinaryClassification({.threshold = 0.3}), samples, 1 + trial % 4, random,
                    [&](BinaryClassification& local, const std::vector<int64_t>& batch) {
                      local.Update(Rows(scores, batch), Rows(labels, batch));
                    });
    EXPECT_EQ(merged.true_positives(), count(predicted.logical_and(labels)));
    EXPECT_EQ(merged.false_positives(), count(predicted.logical_and(labels.eq(0))));
    EXPECT_EQ(merged.true_negatives(), count(predicted.logical_not().logical_and(labels.eq(0))));
    EXPECT_EQ(merged.false_negatives(), count(predicted.logical_not().logical_and(labels)));
  }
}

TEST(BinaryClassificationTest, TheStateOfOtherOptionsIsRefused) {
  BinaryClassification metric({.threshold = 0.3});
  metric.Update(torch::tensor({0.4}), torch::tensor({1}));
  BinaryClassification other({.threshold = 0.4});
  EXPECT_EQ(other.Merge(metric.State()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(other.Merge({}).code(), absl::StatusCode::kInvalidArgument);
  BinaryClassification restored({.threshold = 0.3});
  EXPECT_TRUE(restored.Merge(metric.State()).ok());
  EXPECT_EQ(restored.State(), metric.State());
}

}  // namespace
}  // namespace medfusion
