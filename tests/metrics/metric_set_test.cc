#include "medfusion/metrics/metric_set.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <random>

#include "medfusion/distributed/process_group.h"
#include "medfusion/metrics/metrics.h"
#include "tests/metrics/spread.h"
#include "tests/testing/ranks.h"

namespace medfusion {
namespace {

using ::medfusion::testing::RandomBatches;
using ::medfusion::testing::RandomSpread;
using ::medfusion::testing::Rows;
using ::medfusion::testing::RunRanks;

// A binary classifier's evaluation: per-sample losses, probabilities and labels.
struct Evaluation {
  explicit Evaluation(int64_t samples)
      : losses(torch::rand({samples}).exp()),
        probabilities(torch::rand({samples}).mul(20).floor().div(20)),
        labels(torch::randint(0, 2, {samples})) {}

  at::Tensor losses;
  at::Tensor probabilities;
  at::Tensor labels;
};

struct Metrics {
  MetricSet set;
  MeanMeter& loss = set.Add<MeanMeter>("loss");
  BinaryClassification& decisions = set.Add<BinaryClassification>("");
  Auroc& auroc = set.Add<Auroc>("");
  Calibration& calibration = set.Add<Calibration>("calibration");
  ConfusionMatrix& confusion =
      set.Add<ConfusionMatrix>("classes", ConfusionMatrixOptions{.num_classes = 2});

  void Update(const Evaluation& data, const std::vector<int64_t>& batch) {
    loss.Update(Rows(data.losses, batch));
    decisions.Update(Rows(data.probabilities, batch), Rows(data.labels, batch));
    auroc.Update(Rows(data.probabilities, batch), Rows(data.labels, batch));
    calibration.Update(Rows(data.probabilities, batch), Rows(data.labels, batch));
    confusion.Update(Rows(data.probabilities, batch).gt(0.5), Rows(data.labels, batch));
  }
};

std::vector<int64_t> All(const Evaluation& data) {
  std::vector<int64_t> samples(static_cast<size_t>(data.labels.numel()));
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<int64_t>(i);
  return samples;
}

TEST(MetricSetTest, EqualsOneProcessToTheBitHoweverTheSamplesAreSpread) {
  for (int world = 1; world <= 4; ++world) {
    std::mt19937 random(static_cast<unsigned>(world));
    torch::manual_seed(static_cast<uint64_t>(world));
    constexpr int kTrials = 12;
    std::vector<Evaluation> data;
    std::vector<std::vector<std::vector<int64_t>>> spreads;
    std::vector<MetricResults> expected;
    for (int trial = 0; trial < kTrials; ++trial) {
      data.emplace_back(static_cast<int64_t>(random() % 100));
      spreads.push_back(RandomSpread(data.back().labels.numel(), world, random));
      Metrics alone;
      alone.Update(data.back(), All(data.back()));
      expected.push_back(alone.set.Compute().value());
    }
    RunRanks(world, [&](ProcessGroup& group) {
      std::mt19937 own(static_cast<unsigned>(group.rank()));
      for (int trial = 0; trial < kTrials; ++trial) {
        Metrics local;
        for (const auto& batch : RandomBatches(spreads[trial][group.rank()], own)) {
          local.Update(data[trial], batch);
        }
        EXPECT_EQ(local.set.Compute(group).value(), expected[trial]);
      }
    });
  }
}

TEST(MetricSetTest, ComputingInBetweenChangesNothing) {
  torch::manual_seed(11);
  const Evaluation data(60);
  RunRanks(3, [&](ProcessGroup& group) {
    Metrics local;
    Metrics alone;
    for (int64_t first = 0; first < 60; first += 20) {
      for (int64_t i = first; i < first + 20; ++i) {
        if (i % group.size() == group.rank()) local.Update(data, {i});
        alone.Update(data, {i});
      }
      const MetricState before = local.auroc.State();
      EXPECT_EQ(local.set.Compute(group).value(), local.set.Compute(group).value());
      EXPECT_EQ(MergeRanks(group, local.auroc)->Value(), alone.auroc.Value());
      EXPECT_EQ(MergeRanks(group, local.decisions)->Results(), alone.decisions.Results());
      EXPECT_EQ(MergeRanks(group, local.loss)->Mean(), alone.loss.Mean());
      EXPECT_EQ(local.auroc.State(), before);
    }
  });
}

TEST(MetricSetTest, OneExchangeServesAllMetricsWhileTheirStatesAreSmall) {
  RunRanks(2, [](ProcessGroup& group) {
    const Evaluation data(10);
    Metrics local;
    local.Update(data, All(data));
    const int64_t before = group.traffic().collectives;
    ASSERT_TRUE(local.set.Compute(group).ok());
    EXPECT_EQ(group.traffic().collectives - before, 1);
  });
}

TEST(MetricSetTest, OneClassOnlyIsUndefinedOnEveryRankAndTheRestIsThere) {
  RunRanks(2, [](ProcessGroup& group) {
    Metrics local;
    if (group.rank() == 1) {
      local.loss.Update(0.5);
      local.decisions.Update(torch::tensor({0.9, 0.2}), torch::tensor({1, 1}));
      local.auroc.Update(torch::tensor({0.9, 0.2}), torch::tensor({1, 1}));
    }
    const MetricResults results = local.set.Compute(group).value();
    EXPECT_EQ(results.at("loss").value(), 0.5);
    EXPECT_EQ(results.at("sensitivity").value(), 0.5);
    EXPECT_EQ(results.at("specificity").reason(), "no negative labels");
    EXPECT_EQ(results.at("auroc").reason(), "no negative labels");
    EXPECT_EQ(results.at("calibration/brier").reason(), "no samples");
    EXPECT_EQ(results.at("classes/accuracy").reason(), "no samples");
  });
}

TEST(MetricSetTest, ARefusedUpdateOnOneRankIsTheSameErrorOnAll) {
  std::vector<std::string> errors(3);
  RunRanks(3, [&](ProcessGroup& group) {
    MetricSet metrics;
    Auroc& auroc = metrics.Add<Auroc>("");
    const double bad = group.rank() == 2 ? std::nan("") : 0.5;
    auroc.Update(torch::tensor({bad, 0.25}), torch::tensor({1, 0}));
    const absl::Status status = metrics.Compute(group).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    errors[group.rank()] = std::string(status.message());
    metrics.Reset();
    EXPECT_TRUE(metrics.Compute(group).ok());
  });
  EXPECT_EQ(errors[0].rfind("rank 2: Auroc(probability): 1 of 2 scores in this update are NaN", 0),
            0u)
      << errors[0];
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_EQ(errors[2], errors[0]);
}

TEST(MetricSetTest, RanksWithDifferentMetricsAreAnErrorOnAll) {
  RunRanks(2, [](ProcessGroup& group) {
    MetricSet metrics;
    metrics.Add<ConfusionMatrix>("", ConfusionMatrixOptions{.num_classes = 2 + group.rank()});
    EXPECT_EQ(
        metrics.Compute(group).status().message(),
        "the ranks merge different metrics: rank 0 has ConfusionMatrix(num_classes=2); rank 1 "
        "has ConfusionMatrix(num_classes=3)");
  });
}

TEST(MetricSetTest, TwoResultsOfOneNameAreAnError) {
  MetricSet metrics;
  metrics.Add<MeanMeter>("loss");
  metrics.Add<SumMeter>("loss");
  EXPECT_EQ(metrics.Compute().status().message(),
            "two results are called \"loss\"; give their metrics different names");
}

TEST(MetricSetTest, ASavedEpochContinuesAtAnotherNumberOfRanks) {
  torch::manual_seed(12);
  const Evaluation data(90);
  Metrics alone;
  alone.Update(data, All(data));
  const MetricResults expected = alone.set.Compute().value();
  std::vector<std::vector<MetricState>> saved(3);
  RunRanks(3, [&](ProcessGroup& group) {
    Metrics local;
    for (int64_t i = group.rank(); i < 50; i += 3) local.Update(data, {i});
    saved[group.rank()] = local.set.State();
  });
  RunRanks(2, [&](ProcessGroup& group) {
    Metrics local;
    for (size_t i = group.rank(); i < saved.size(); i += 2) {
      EXPECT_TRUE(local.set.Merge(saved[i]).ok());
    }
    for (int64_t i = 50 + group.rank(); i < 90; i += 2) local.Update(data, {i});
    EXPECT_EQ(local.set.Compute(group).value(), expected);
  });
}

TEST(MetricSetTest, AStateOfOtherMetricsLeavesTheSetAsItWas) {
  MetricSet metrics;
  SumMeter& sum = metrics.Add<SumMeter>("sum");
  metrics.Add<Auroc>("auroc");
  sum.Update(1);
  EXPECT_FALSE(metrics.Merge({}).ok());
  const absl::Status status = metrics.Merge({SumMeter(sum).State(), {{7}, {}}});
  EXPECT_EQ(status.message().rfind("metric 1 \"auroc\": ", 0), 0u) << status;
  EXPECT_EQ(sum.Sum(), 1.0);
}

}  // namespace
}  // namespace medfusion
