#include "medfusion/metrics/confusion_matrix.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <random>

#include "tests/metrics/spread.h"

namespace medfusion {
namespace {

using ::medfusion::testing::MergeSpread;
using ::medfusion::testing::Rows;

TEST(ConfusionMatrixTest, GivesTheRatesOfAHandCountedTable) {
  ConfusionMatrix metric({.num_classes = 3});
  metric.Update(torch::tensor({0, 0, 1, 1, 2, 2, 0}), torch::tensor({0, 0, 0, 1, 1, 2, 2}));
  // label 0: predicted 0 twice, 1 once; label 1: 1 once, 2 once; label 2: 2 once, 0 once.
  EXPECT_TRUE(metric.Matrix().equal(torch::tensor({{2, 1, 0}, {0, 1, 1}, {1, 0, 1}})));
  EXPECT_EQ(metric.Count(0, 1), 1);
  EXPECT_EQ(metric.Accuracy().value(), 4.0 / 7.0);
  EXPECT_EQ(metric.Sensitivity(0).value(), 2.0 / 3.0);
  EXPECT_EQ(metric.Specificity(0).value(), 3.0 / 4.0);
  EXPECT_EQ(metric.Precision(0).value(), 2.0 / 3.0);
  EXPECT_EQ(metric.F1(0).value(), 4.0 / 6.0);
  EXPECT_EQ(metric.Iou(0).value(), 2.0 / 4.0);
  // (2/3 + 1/2 + 1/2) / 3
  EXPECT_DOUBLE_EQ(metric.BalancedAccuracy().value(), 5.0 / 9.0);
  // (2/3 + 1/2 + 1/2) / 3: F1 of class 1 is 2 / (2 + 1 + 1), of class 2 the same
  EXPECT_DOUBLE_EQ(metric.MacroF1().value(), 5.0 / 9.0);
}

TEST(ConfusionMatrixTest, TheLargestScoreWinsAndTheFirstOfEquals) {
  ConfusionMatrix metric({.num_classes = 3});
  metric.Update(torch::tensor({{0.1, 0.7, 0.2}, {0.4, 0.2, 0.4}}), torch::tensor({1, 2}));
  EXPECT_EQ(metric.Count(1, 1), 1);
  EXPECT_EQ(metric.Count(2, 0), 1);
}

TEST(ConfusionMatrixTest, CountsPixelsButTheIgnoredOnes) {
  ConfusionMatrix metric({.num_classes = 2, .ignore_label = 255});
  const at::Tensor labels = torch::tensor({{{0, 1}, {255, 1}}}, torch::kByte);  // [1, 2, 2]
  at::Tensor scores = torch::zeros({1, 2, 2, 2});
  scores.select(1, 1).fill_(1.0);  // class 1 everywhere
  metric.Update(scores, labels);
  EXPECT_TRUE(metric.status().ok()) << metric.status();
  EXPECT_TRUE(metric.Matrix().equal(torch::tensor({{0, 1}, {0, 2}})));
}

TEST(ConfusionMatrixTest, AnAbsentClassIsUndefinedAndNamed) {
  ConfusionMatrix metric({.num_classes = 3});
  EXPECT_EQ(metric.Accuracy().reason(), "no samples");
  metric.Update(torch::tensor({0, 1}), torch::tensor({0, 1}));
  EXPECT_EQ(metric.Sensitivity(2).reason(), "no labels of class 2");
  EXPECT_EQ(metric.BalancedAccuracy().reason(), "no labels of class 2");
  EXPECT_EQ(metric.Accuracy().value(), 1.0);
  EXPECT_EQ(metric.Specificity(2).value(), 1.0);
  EXPECT_THROW(metric.Sensitivity(3), std::out_of_range);
}

TEST(ConfusionMatrixTest, AnyUpdateThatCannotBeReadIsRefusedWhole) {
  const struct {
    at::Tensor predictions;
    at::Tensor labels;
    std::string message;
  } kCases[] = {
      {torch::tensor({0, 3}), torch::tensor({0, 1}),
       "1 of 2 predictions are no class; element 1 of this update, flattened, is 3; expected 0..2"},
      {torch::tensor({0, 1}), torch::tensor({-1, 7}), "2 of 2 labels are no class; element 0"},
      {torch::tensor({0, 1, 2}), torch::tensor({0, 1}), "differ in shape"},
      {torch::zeros({2, 4}), torch::tensor({0, 1}), "expected floating-point scores [2, 3]"},
      {torch::full({2, 3}, std::nan("")), torch::tensor({0, 1}), "6 of 6 scores"},
      {torch::zeros({2, 3}), torch::tensor({0.0, 1.0}), "expected integer classes"},
      {at::Tensor(), torch::tensor({0, 1}), "predictions are undefined"},
  };
  for (const auto& test : kCases) {
    ConfusionMatrix metric({.num_classes = 3});
    metric.Update(test.predictions, test.labels);
    EXPECT_NE(metric.status().message().find(test.message), std::string::npos) << metric.status();
    EXPECT_EQ(metric.Accuracy().reason(), "no samples");
  }
  EXPECT_THROW(ConfusionMatrix({.num_classes = 1}), std::invalid_argument);
}

TEST(ConfusionMatrixTest, EqualsOneProcessHoweverTheSamplesAreSpread) {
  std::mt19937 random(5);
  torch::manual_seed(5);
  for (int trial = 0; trial < 40; ++trial) {
    const int64_t samples = static_cast<int64_t>(random() % 60);
    const at::Tensor scores = torch::rand({samples, 4});
    const at::Tensor labels = torch::randint(0, 4, {samples});
    at::Tensor expected = torch::zeros({4, 4}, torch::kLong);
    for (int64_t i = 0; i < samples; ++i) {
      expected[labels[i].item<int64_t>()][scores[i].argmax().item<int64_t>()] += 1;
    }
    const ConfusionMatrix merged =
        MergeSpread(ConfusionMatrix({.num_classes = 4}), samples, 1 + trial % 4, random,
                    [&](ConfusionMatrix& local, const std::vector<int64_t>& batch) {
                      local.Update(Rows(scores, batch), Rows(labels, batch));
                    });
    EXPECT_TRUE(merged.Matrix().equal(expected));
  }
}

}  // namespace
}  // namespace medfusion
