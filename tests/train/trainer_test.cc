// The trainer with a small model of the tests' own: steps, decisions, errors, over threads.
#include "medfusion/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>

#include "medfusion/train/distributed_model.h"
#include "tests/testing/processes.h"
#include "tests/testing/ranks.h"

namespace medfusion {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSamples = 50;

struct Problem {
  at::Tensor features = torch::sin(torch::arange(kSamples * 3, torch::kDouble)).view({kSamples, 3});
  at::Tensor targets = (features.sum(1) > 0).to(torch::kLong);

  Batch Get(std::span<const size_t> indices) const {
    std::vector<int64_t> at(indices.begin(), indices.end());
    const at::Tensor index = torch::tensor(at);
    return {features.index_select(0, index),
            targets.index_select(0, index),
            {indices.begin(), indices.end()}};
  }
};

torch::nn::Linear MakeNet() {
  torch::nn::Linear net(3, 2);
  net->to(torch::kDouble);
  torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) {
    parameter.copy_(
        torch::cos(torch::arange(parameter.numel(), torch::kDouble)).view(parameter.sizes()));
  }
  return net;
}

Split MakeSplit() {
  Split split;
  for (size_t i = 0; i < 37; ++i) split.train.push_back(i);
  for (size_t i = 37; i < 44; ++i) split.validation.push_back(i);
  for (size_t i = 44; i < kSamples; ++i) split.test.push_back(i);
  return split;
}

struct Outcome {
  absl::Status status;
  TrainReport report;
  std::vector<StepInfo> steps;
  std::vector<at::Tensor> parameters;
};

using Fetch = std::function<void(int rank)>;  // may throw
using Losses = std::function<at::Tensor(const at::Tensor&, const Batch&, int rank)>;

at::Tensor CrossEntropy(const at::Tensor& logits, const Batch& batch, int) {
  return torch::nn::functional::cross_entropy(
      logits, batch.targets,
      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
}

Outcome TrainHere(ProcessGroup& group, const TrainOptions& options, const Losses& losses,
                  const StrategyOptions& strategy, const Fetch& fetch) {
  Outcome outcome;
  const Problem problem;
  const auto model = CreateDistributedModel(MakeNet(), strategy, group.shared_from_this()).value();
  const TrainingTask task = {
      .model = model.get(),
      .forward = [&](const Batch& batch) { return model->forward(batch.features); },
      .losses = [&](const at::Tensor& outputs,
                    const Batch& batch) { return losses(outputs, batch, group.rank()); },
      .fetch =
          [&](std::span<const size_t> indices) {
            if (fetch) fetch(group.rank());
            return problem.Get(indices);
          },
      .split = MakeSplit(),
      .evaluator = [] { return std::make_unique<BinaryEvaluator>(); },
      .on_step = [&](const StepInfo& step) { outcome.steps.push_back(step); }};
  auto report = Train(group, options, task);
  outcome.status = report.status();
  if (report.ok()) outcome.report = *report;
  // After an error ranks may not be together any more.
  if (!outcome.status.ok()) return outcome;
  const auto whole = model->WholeParameters(/*writeback=*/false);
  for (const auto& parameter : model->module().parameters()) {
    outcome.parameters.push_back(parameter.detach().clone());
  }
  return outcome;
}

std::vector<Outcome> TrainOn(int ranks, const TrainOptions& options,
                             const Losses& losses = CrossEntropy,
                             std::optional<StrategyOptions> strategy = {},
                             const Fetch& fetch = nullptr) {
  if (!strategy) strategy = StrategyOptions{.name = ranks == 1 ? "none" : "ddp"};
  std::vector<Outcome> outcomes(ranks);
  testing::RunRanks(ranks, [&](ProcessGroup& group) {
    outcomes[group.rank()] = TrainHere(group, options, losses, *strategy, fetch);
  });
  return outcomes;
}

const StrategyOptions kSharded = {.name = "fsdp", .min_num_params = 0};

TrainOptions Options(int64_t batch_size) {
  return {.epochs = 4, .batch_size = batch_size, .learning_rate = 0.05, .patience = 0};
}

void ExpectEqualRuns(const Outcome& a, const Outcome& b, double tolerance) {
  ASSERT_TRUE(a.status.ok()) << a.status;
  ASSERT_TRUE(b.status.ok()) << b.status;
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_NEAR(a.steps[i].loss, b.steps[i].loss, tolerance) << "step " << i;
  }
  for (size_t i = 0; i < a.parameters.size(); ++i) {
    EXPECT_LE((a.parameters[i] - b.parameters[i]).abs().max().item<double>(), tolerance);
  }
  for (const auto& [name, result] : a.report.test) {
    EXPECT_NEAR(result.value_or(-1), b.report.test.at(name).value_or(-1), tolerance) << name;
  }
}

// 37 samples in joint batches of 12: the last one has a single sample, on rank 0 alone.
TEST(TrainerTest, AnyNumberOfRanksTrainsAsOneDoesOnTheJointBatch) {
  const Outcome one = TrainOn(1, Options(12))[0];
  for (const int ranks : {2, 3}) {
    for (const Outcome& other : TrainOn(ranks, Options(12 / ranks))) {
      ExpectEqualRuns(one, other, 1e-12);
    }
  }
}

TEST(TrainerTest, AccumulatedBatchesTrainAsOneLargeBatchDoes) {
  const Outcome one = TrainOn(1, Options(12))[0];
  TrainOptions options = Options(2);
  options.accumulate = 3;
  for (const Outcome& other : TrainOn(2, options)) ExpectEqualRuns(one, other, 1e-12);
  options = Options(4);
  options.accumulate = 3;
  ExpectEqualRuns(one, TrainOn(1, options)[0], 1e-12);
}

TEST(TrainerTest, ShardedRanksTrainAsOneDoes) {
  TrainOptions options = Options(12);
  options.clip_norm = 0.05;
  const Outcome one = TrainOn(1, options)[0];
  for (const int ranks : {1, 2, 3}) {
    options.batch_size = 12 / ranks;
    for (const Outcome& other : TrainOn(ranks, options, CrossEntropy, kSharded)) {
      ExpectEqualRuns(one, other, 1e-12);
    }
  }
  options.batch_size = 2;
  options.accumulate = 3;
  for (const Outcome& other : TrainOn(2, options, CrossEntropy, kSharded)) {
    ExpectEqualRuns(one, other, 1e-12);
  }
}

TEST(TrainerTest, ClippingSeesTheAveragedGradients) {
  TrainOptions options = Options(12);
  options.clip_norm = 0.01;
  const Outcome one = TrainOn(1, options)[0];
  options.batch_size = 6;
  for (const Outcome& other : TrainOn(2, options)) ExpectEqualRuns(one, other, 1e-12);
}

// On rank 1, in epoch 2, at its second batch.
Losses BreakOnce(double value, std::vector<int>& calls) {
  calls.assign(3, 0);
  return [value, &calls](const at::Tensor& outputs, const Batch& batch, int rank) {
    at::Tensor losses = CrossEntropy(outputs, batch, rank);
    // An epoch of training has 4 batches, its validation 1.
    if (++calls[rank] == 7 && rank == 1) losses = losses * value;
    return losses;
  };
}

TEST(TrainerTest, ALossThatIsNoNumberOnOneRankStopsAllAndIsNamed) {
  std::vector<int> calls;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Outcome& outcome : TrainOn(3, Options(4), BreakOnce(nan, calls))) {
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(outcome.status.message()),
                HasSubstr("the loss is nan on rank 1 at epoch 2, step 2 of 4"));
  }
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Outcome& outcome : TrainOn(2, Options(6), BreakOnce(infinity, calls))) {
    EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("the loss is inf on rank 1"));
  }
}

TEST(TrainerTest, SkippingLeavesTheStepOutOnAllRanksAndCountsIt) {
  std::vector<int> calls;
  TrainOptions options = Options(4);
  options.on_nonfinite = OnNonfinite::kSkip;
  const auto outcomes =
      TrainOn(3, options, BreakOnce(std::numeric_limits<double>::quiet_NaN(), calls));
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(outcome.report.skipped_steps, 1);
    ExpectEqualRuns(outcome, outcomes[0], 0);
    for (const StepInfo& step : outcome.steps) {
      EXPECT_EQ(step.skipped, step.epoch == 2 && step.step == 2);
    }
    for (const at::Tensor& parameter : outcome.parameters) {
      EXPECT_TRUE(parameter.isfinite().all().item<bool>());
    }
  }
}

// The gradients of the step's first batch have been added up by then.
TEST(TrainerTest, ASkippedStepLeavesNoGradientsBehind) {
  TrainOptions options = Options(2);
  options.accumulate = 2;
  options.on_nonfinite = OnNonfinite::kSkip;
  const auto train = [&](const StrategyOptions& strategy) {
    std::vector<int> calls(3, 0);
    const auto break_once = [&calls](const at::Tensor& outputs, const Batch& batch, int rank) {
      at::Tensor losses = CrossEntropy(outputs, batch, rank);
      return ++calls[rank] == 4 ? losses / 0.0 : losses;
    };
    return TrainOn(3, options, break_once, strategy);
  };
  const auto expected = train({.name = "ddp"});
  EXPECT_EQ(expected[0].report.skipped_steps, 1);
  for (const Outcome& outcome : train(kSharded)) ExpectEqualRuns(outcome, expected[0], 1e-12);
}

TEST(TrainerTest, ASampleThatOneRankCannotReadEndsAllAlsoWhereForwardIsCollective) {
  for (const bool training : {true, false}) {
    std::vector<int> calls(3, 0);
    // An epoch of training fetches 4 times; the fifth is validation's.
    const auto fail = [&](int rank) {
      if (++calls[rank] == (training ? 2 : 5) && rank == 1) throw std::runtime_error("unreadable");
    };
    for (const Outcome& outcome : TrainOn(3, Options(4), CrossEntropy, kSharded, fail)) {
      EXPECT_EQ(outcome.status.message(), "rank 1: unreadable");
    }
  }
}

TEST(TrainerTest, AnErrorOnOneRankEndsAllAndIsNamed) {
  const auto fail = [](const at::Tensor& outputs, const Batch& batch, int rank) {
    if (rank == 1) throw std::runtime_error("a broken sample");
    return CrossEntropy(outputs, batch, rank);
  };
  for (const char* strategy : {"ddp", "fsdp"}) {
    for (const Outcome& outcome : TrainOn(3, Options(4), fail, {{.name = strategy}})) {
      EXPECT_EQ(outcome.status.message(), "rank 1: a broken sample");
    }
  }
}

TEST(TrainerTest, EarlyStoppingKeepsTheBestEpochOnAllRanks) {
  TrainOptions options = Options(6);
  options.epochs = 50;
  options.patience = 2;
  options.learning_rate = 3;  // overshoots
  const auto outcomes = TrainOn(2, options);
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_TRUE(outcome.report.stopped_early);
    EXPECT_EQ(outcome.report.epochs, outcome.report.best_epoch + 2);
    ExpectEqualRuns(outcome, outcomes[0], 0);
  }
}

TEST(TrainerTest, AnUnknownStrategyIsRefusedWithTheKnownOnes) {
  testing::RunRanks(2, [](ProcessGroup& group) {
    const auto unknown = CreateDistributedModel(MakeNet(), "zero", group.shared_from_this());
    ASSERT_FALSE(unknown.ok());
    EXPECT_EQ(unknown.status().message(),
              "strategy=zero is unknown; expected one of none, ddp, fsdp");
    const auto alone = CreateDistributedModel(MakeNet(), "none", group.shared_from_this());
    ASSERT_FALSE(alone.ok());
    EXPECT_THAT(std::string(alone.status().message()), HasSubstr("there are 2; choose ddp"));
  });
}

}  // namespace
}  // namespace medfusion
