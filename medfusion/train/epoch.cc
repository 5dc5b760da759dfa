#include "medfusion/train/epoch.h"

#include <ATen/core/grad_mode.h>
#include <absl/strings/str_cat.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "medfusion/base/status.h"
#include "medfusion/distributed/agreement.h"
#include "medfusion/metrics/reduce_dict.h"
#include "medfusion/train/step_plan.h"
#include "medfusion/train/step_vote.h"

namespace medfusion {
namespace {

// A batch of which the first `real` samples count; the others stand in so that the rank takes part.
struct RankBatch {
  Batch batch;
  int64_t real = 0;
};

RankBatch NextBatch(const TrainingTask& task, std::span<const size_t> positions,
                    DistributedSampler& sampler, int64_t batch_size, at::Device device) {
  std::vector<size_t> indices;
  if (auto next = sampler.Next(static_cast<size_t>(batch_size))) indices = *std::move(next);
  RankBatch result;
  result.real = static_cast<int64_t>(indices.size());
  if (indices.empty()) indices.push_back(0);
  for (size_t& index : indices) index = positions[index];
  result.batch = task.fetch(indices);
  result.batch.features = result.batch.features.to(device);
  result.batch.targets = result.batch.targets.to(device);
  return result;
}

// Collective where forward is: a rank without a batch must not leave the others alone in it. The
// same on all ranks then; otherwise OK, for a vote after forward.
absl::Status AgreeBeforeForward(ProcessGroup& group, const ModelStrategy& model,
                                const absl::Status& local) {
  if (!model.collective_forward()) return absl::OkStatus();
  if (!AnyRank(group, !local.ok())) return absl::OkStatus();
  return AgreeOnStatus(group, local);
}

// An epoch in progress.
class EpochRun {
 public:
  EpochRun(ProcessGroup& group, const TrainOptions& options, const TrainingTask& task,
           torch::optim::Optimizer& optimizer, GradScaler& scaler, DistributedSampler& sampler)
      : group_(group),
        options_(options),
        task_(task),
        optimizer_(optimizer),
        scaler_(scaler),
        sampler_(sampler),
        plan_(sampler.dataset_size(), options.batch_size, group.size(), options.accumulate) {}

  absl::StatusOr<EpochTotals> Run() {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t step = 0; step < plan_.steps(); ++step) {
      MEDFUSION_RETURN_IF_ERROR(Step(step));
    }
    // A loss that is scaled too much costs steps at first.
    const bool settling = scaler_.enabled() && scaler_.scale() >= 1;
    if (totals_.steps == 0 && !settling) {
      return absl::FailedPreconditionError(absl::StrCat("all ", plan_.steps(), " steps of epoch ",
                                                        sampler_.epoch() + 1,
                                                        " were skipped: ", last_trouble_));
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    return Combine(seconds.count());
  }

 private:
  absl::Status Step(int64_t step);
  absl::StatusOr<StepVote> Forward(int64_t step, at::Tensor& loss, int64_t& real);
  absl::StatusOr<bool> Accumulate(int64_t step, double& loss_sum, int64_t& real);
  absl::StatusOr<bool> GradientsAreFinite(int64_t step);
  absl::StatusOr<bool> TakeStep(int64_t step);
  absl::Status OnTrouble(int64_t step, const std::string& what);
  absl::StatusOr<EpochTotals> Combine(double seconds);

  ProcessGroup& group_;
  const TrainOptions& options_;
  const TrainingTask& task_;
  torch::optim::Optimizer& optimizer_;
  GradScaler& scaler_;
  DistributedSampler& sampler_;
  const StepPlan plan_;
  EpochTotals totals_;
  double loss_sum_ = 0;       // of all ranks' samples
  int64_t rank_samples_ = 0;  // of this rank
  std::string last_trouble_;
};

// The vote of all ranks on one batch, and this rank's loss to go backward from.
absl::StatusOr<StepVote> EpochRun::Forward(int64_t step, at::Tensor& loss, int64_t& real) {
  double local_sum = 0;
  RankBatch next;
  absl::Status local = CatchAsStatus([&] {
    next = NextBatch(task_, task_.split.train, sampler_, options_.batch_size, group_.device());
  });
  MEDFUSION_RETURN_IF_ERROR(AgreeBeforeForward(group_, *task_.model, local));
  at::Tensor outputs;
  if (local.ok()) local = CatchAsStatus([&] { outputs = task_.forward(next.batch); });
  // The others may wait for this rank inside of forward, and would not vote.
  if (!local.ok() && task_.model->collective_forward()) return local;
  if (local.ok()) {
    local = CatchAsStatus([&] {
      const at::Tensor sum = task_.losses(outputs, next.batch).slice(0, 0, next.real).sum();
      local_sum = sum.detach().to(at::kDouble).item<double>();
      real += next.real;
      loss =
          sum * (static_cast<double>(group_.size()) / static_cast<double>(plan_.SamplesOf(step)));
    });
  }
  // A broken group cannot vote.
  if (group_.failed()) return local;
  return VoteOnStep(group_, local, local_sum);
}

// Adds up the gradients of a step's batches. False when the step is to be skipped.
absl::StatusOr<bool> EpochRun::Accumulate(int64_t step, double& loss_sum, int64_t& real) {
  const int64_t batches = plan_.BatchesOf(step);
  bool usable = true;
  for (int64_t b = 0; b < batches; ++b) {
    at::Tensor loss;
    MEDFUSION_ASSIGN_OR_RETURN(const StepVote vote, Forward(step, loss, real));
    loss_sum += vote.loss_sum;
    if (!vote.finite()) {
      MEDFUSION_RETURN_IF_ERROR(OnTrouble(step, absl::StrCat("the loss is ", vote.Describe())));
      usable = false;
    }
    if (!usable) continue;  // the rest of the step's samples are passed over, too
    const auto quiet = b + 1 < batches ? task_.model->NoSync() : nullptr;
    scaler_.Scale(loss).backward();
  }
  return usable;
}

// Only asked where it costs nothing more or is to be survived. Gradients are the same on all ranks.
absl::StatusOr<bool> EpochRun::GradientsAreFinite(int64_t step) {
  const bool clip = options_.clip_norm > 0;
  if (!clip && options_.on_nonfinite == OnNonfinite::kStop) return true;
  const double norm = task_.model->ClipGradNorm(clip ? options_.clip_norm
                                                     : std::numeric_limits<double>::infinity());
  if (std::isfinite(norm)) return true;
  MEDFUSION_RETURN_IF_ERROR(OnTrouble(step, absl::StrCat("the gradients' norm is ", norm)));
  return false;
}

// False when the step was left out.
absl::StatusOr<bool> EpochRun::TakeStep(int64_t step) {
  const bool finite = scaler_.Unscale(optimizer_);
  bool usable = finite;
  // Gradients that are finite may have a norm that is not.
  if (finite) {
    MEDFUSION_ASSIGN_OR_RETURN(usable, GradientsAreFinite(step));
  } else {
    last_trouble_ = absl::StrCat("gradients overflow with the loss scaled by ", scaler_.scale());
  }
  if (usable) scaler_.Step(optimizer_);
  scaler_.Update();
  return usable;
}

absl::Status EpochRun::OnTrouble(int64_t step, const std::string& what) {
  last_trouble_ = absl::StrCat(what, " at epoch ", sampler_.epoch() + 1, ", step ", step + 1,
                               " of ", plan_.steps());
  if (options_.on_nonfinite == OnNonfinite::kSkip) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      last_trouble_, "; all ranks stop (on_nonfinite=skip would leave such steps out)"));
}

absl::Status EpochRun::Step(int64_t step) {
  optimizer_.zero_grad();
  double loss_sum = 0;
  int64_t real = 0;
  MEDFUSION_ASSIGN_OR_RETURN(bool usable, Accumulate(step, loss_sum, real));
  if (usable) {
    MEDFUSION_ASSIGN_OR_RETURN(usable, TakeStep(step));
  } else {
    task_.model->ForgetGradients();
  }
  if (usable) {
    loss_sum_ += loss_sum;
    rank_samples_ += real;
    totals_.samples += plan_.SamplesOf(step);
    ++totals_.steps;
  } else {
    ++totals_.skipped_steps;
  }
  if (task_.on_step) {
    task_.on_step({.epoch = sampler_.epoch() + 1,
                   .step = step + 1,
                   .steps = plan_.steps(),
                   .loss = loss_sum / static_cast<double>(plan_.SamplesOf(step)),
                   .skipped = !usable});
  }
  return absl::OkStatus();
}

// What ranks counted each for themselves, together; it must come to what the plan foresaw.
absl::StatusOr<EpochTotals> EpochRun::Combine(double seconds) {
  MEDFUSION_ASSIGN_OR_RETURN(const MetricMap all,
                             ReduceDict(group_, {{"samples", rank_samples_}, {"seconds", seconds}},
                                        {.reductions = {{"samples", MetricReduction::kSum},
                                                        {"seconds", MetricReduction::kMax}}}));
  const int64_t samples = all.at("samples").AsInt64();
  if (samples != totals_.samples) {
    return absl::InternalError(
        absl::StrCat("the ranks read ", samples, " samples, but the epoch has ", totals_.samples));
  }
  totals_.seconds = all.at("seconds").AsDouble();
  totals_.loss = loss_sum_ / static_cast<double>(samples);
  return totals_;
}

}  // namespace

absl::StatusOr<EpochTotals> TrainEpoch(ProcessGroup& group, const TrainOptions& options,
                                       const TrainingTask& task, torch::optim::Optimizer& optimizer,
                                       GradScaler& scaler, DistributedSampler& sampler) {
  return EpochRun(group, options, task, optimizer, scaler, sampler).Run();
}

absl::StatusOr<MetricResults> Evaluate(ProcessGroup& group, int64_t batch_size,
                                       const TrainingTask& task,
                                       std::span<const size_t> positions) {
  const auto samples = static_cast<int64_t>(positions.size());
  const std::unique_ptr<Evaluator> evaluator = task.evaluator();
  DistributedSampler sampler(samples, group.size(), group.rank(),
                             {.shuffle = false, .mode = SamplerMode::kExactlyOnce});
  const StepPlan plan(samples, batch_size, group.size(), 1);
  torch::nn::Module& module = task.model->module();
  const bool was_training = module.is_training();
  module.eval();
  bool agreed = false;
  absl::Status local;
  const absl::Status passed = CatchAsStatus([&] {
    const at::NoGradGuard no_grad;
    for (int64_t b = 0; b < plan.batches(); ++b) {
      RankBatch next;
      if (local.ok()) {
        local = CatchAsStatus(
            [&] { next = NextBatch(task, positions, sampler, batch_size, group.device()); });
      }
      const absl::Status joint = AgreeBeforeForward(group, *task.model, local);
      agreed = !joint.ok();
      if (agreed) local = joint;
      if (!local.ok()) return;
      const at::Tensor outputs = task.forward(next.batch);
      if (next.real == 0) continue;
      local = CatchAsStatus(
          [&] { evaluator->Update(outputs, task.losses(outputs, next.batch), next.batch); });
    }
  });
  module.train(was_training);
  if (agreed) return local;
  local.Update(passed);
  if (group.failed() || (!passed.ok() && task.model->collective_forward())) return local;
  MEDFUSION_RETURN_IF_ERROR(AgreeOnStatus(group, local));
  return evaluator->metrics().Compute(group);
}

}  // namespace medfusion
