#include "medfusion/train/trainer.h"

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <absl/strings/str_cat.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "medfusion/base/status.h"
#include "medfusion/distributed/agreement.h"
#include "medfusion/optim/optim.h"
#include "medfusion/train/early_stopping.h"

namespace medfusion {
namespace {

constexpr char kModel[] = "model/";
constexpr char kBest[] = "best/";
constexpr char kOptimizer[] = "optimizer/";
constexpr char kConstants[] = "constants/";

// Spreads neighbouring numbers over all 64 bits (the finalizer of MurmurHash3).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

class TrainRun {
 public:
  TrainRun(ProcessGroup& group, const TrainOptions& options, const TrainingTask& task,
           const TrainHooks& hooks)
      : group_(group),
        options_(options),
        task_(task),
        hooks_(hooks),
        optimizer_(
            task.model->parameters(),
            torch::optim::AdamWOptions(options.learning_rate).weight_decay(options.weight_decay)),
        sampler_(static_cast<int64_t>(task.split.train.size()), group.size(), group.rank(),
                 {.seed = options.seed, .mode = SamplerMode::kExactlyOnce}),
        scaler_({.enabled = task.model->needs_loss_scaling(), .group = group.shared_from_this()}),
        stopping_{.patience = options.patience} {}

  absl::StatusOr<TrainReport> Run() {
    if (task_.split.train.empty()) {
      return absl::InvalidArgumentError("there are no samples to train on");
    }
    MEDFUSION_RETURN_IF_ERROR(Begin());
    if (hooks_.on_begin) hooks_.on_begin(report_.resumed_after);
    while (report_.epochs < options_.epochs && !report_.stopped_early) {
      MEDFUSION_RETURN_IF_ERROR(Epoch());
    }
    report_.best_epoch = stopping_.best_epoch;
    if (!best_.empty()) {
      MEDFUSION_RETURN_IF_ERROR(RestoreModule(best_, kBest, *task_.model));
    }
    if (!task_.split.test.empty()) {
      MEDFUSION_ASSIGN_OR_RETURN(report_.test,
                                 Evaluate(group_, options_.batch_size, task_, task_.split.test));
    }
    return std::move(report_);
  }

 private:
  absl::Status Begin();
  absl::Status Epoch();
  absl::Status Save();
  absl::Status Restore(const TrainCheckpoint& checkpoint);
  bool DecideToStop();

  ProcessGroup& group_;
  const TrainOptions& options_;
  const TrainingTask& task_;
  const TrainHooks& hooks_;
  FusedAdamW optimizer_;
  DistributedSampler sampler_;
  GradScaler scaler_;
  EarlyStopping stopping_;
  NamedTensors best_;  // the best epoch's model
  int64_t steps_ = 0;  // taken in all epochs
  TrainReport report_;
};

// Takes up the newest checkpoint, or makes way for new ones.
absl::Status TrainRun::Begin() {
  if (hooks_.checkpoints == nullptr) return absl::OkStatus();
  if (!options_.resume) {
    return options_.save_interval > 0 ? hooks_.checkpoints->Clear() : absl::OkStatus();
  }
  MEDFUSION_ASSIGN_OR_RETURN(const auto checkpoint, hooks_.checkpoints->LoadLatest());
  if (!checkpoint.has_value()) return absl::OkStatus();
  const absl::Status restored = CatchAsStatus([&] { return Restore(*checkpoint); });
  return AgreeOnStatus(group_, restored);
}

absl::Status TrainRun::Epoch() {
  sampler_.SetEpoch(report_.epochs);
  const auto seed = static_cast<uint64_t>(options_.seed);
  at::manual_seed(Mix(Mix(Mix(seed) + static_cast<uint64_t>(report_.epochs)) +
                      static_cast<uint64_t>(group_.rank())));
  EpochRecord record;
  record.epoch = report_.epochs + 1;
  MEDFUSION_ASSIGN_OR_RETURN(record.train,
                             TrainEpoch(group_, options_, task_, optimizer_, scaler_, sampler_));
  double loss = record.train.loss;  // without validation samples the training loss has to do
  if (!task_.split.validation.empty()) {
    MEDFUSION_ASSIGN_OR_RETURN(
        record.validation, Evaluate(group_, options_.batch_size, task_, task_.split.validation));
    loss = record.validation.at("loss").value_or(std::numeric_limits<double>::quiet_NaN());
  }
  record.best = stopping_.Update(record.epoch, loss);
  if (record.best) CaptureModule(*task_.model, kBest, best_);
  ++report_.epochs;
  steps_ += record.train.steps;
  report_.skipped_steps += record.train.skipped_steps;
  report_.history.push_back(record.ToJson());
  report_.stopped_early = DecideToStop();

  const bool last = report_.stopped_early || report_.epochs == options_.epochs;
  if (options_.save_interval > 0 && (last || report_.epochs % options_.save_interval == 0)) {
    MEDFUSION_RETURN_IF_ERROR(Save());
  }
  if (!hooks_.on_epoch) return absl::OkStatus();
  return AgreeOnStatus(group_,
                       CatchAsStatus([&] { return hooks_.on_epoch(record, report_.history); }));
}

// Ranks see the same losses; should one not, all still do the same.
bool TrainRun::DecideToStop() { return AnyRank(group_, stopping_.ShouldStop()); }

absl::Status TrainRun::Save() {
  if (hooks_.checkpoints == nullptr) return absl::OkStatus();
  TrainCheckpoint checkpoint;
  checkpoint.epoch = report_.epochs;
  const nlohmann::json metadata = {{"format", 1},
                                   {"strategy", task_.model->name()},
                                   {"world_size", group_.size()},
                                   {"seed", options_.seed},
                                   {"steps", steps_},
                                   {"skipped_steps", report_.skipped_steps},
                                   {"sampler", sampler_.State().ToVector()},
                                   {"best_loss", stopping_.best_loss},
                                   {"best_epoch", stopping_.best_epoch},
                                   {"waited", stopping_.waited},
                                   {"loss_scale", scaler_.state().scale},
                                   {"loss_scale_clean_steps", scaler_.state().clean_steps},
                                   {"history", report_.history}};
  checkpoint.metadata = metadata.dump();
  checkpoint.tensors = best_;
  CaptureModule(*task_.model, kModel, checkpoint.tensors);
  CaptureAdamW(*task_.model, group_, optimizer_, kOptimizer, checkpoint.tensors);
  for (const auto& [name, tensor] : hooks_.constants)
    checkpoint.tensors[kConstants + name] = tensor;
  return hooks_.checkpoints->Save(checkpoint);
}

absl::Status TrainRun::Restore(const TrainCheckpoint& checkpoint) {
  const auto metadata = nlohmann::json::parse(checkpoint.metadata);
  if (metadata.at("seed") != options_.seed) {
    return absl::InvalidArgumentError(
        absl::StrCat("seed=", options_.seed, ", but the checkpoint has seed=",
                     metadata.at("seed").get<int64_t>(), "; give that one, or do not resume"));
  }
  for (const auto& [name, tensor] : hooks_.constants) {
    const auto found = checkpoint.tensors.find(kConstants + name);
    if (found == checkpoint.tensors.end() || !at::equal(found->second, tensor)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the checkpoint was made with other data (its ", name, " differs); do not resume"));
    }
  }
  MEDFUSION_ASSIGN_OR_RETURN(
      const SamplerState sampler,
      SamplerState::FromVector(metadata.at("sampler").get<std::vector<int64_t>>()));
  MEDFUSION_RETURN_IF_ERROR(sampler_.Restore(sampler));
  MEDFUSION_RETURN_IF_ERROR(RestoreModule(checkpoint.tensors, kModel, *task_.model));
  MEDFUSION_RETURN_IF_ERROR(RestoreAdamW(checkpoint.tensors, kOptimizer, *task_.model, optimizer_));
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (name.starts_with(kBest)) best_[name] = tensor;
  }
  steps_ = metadata.at("steps");
  // JSON has no infinity; a run whose validation loss was never a number has null here.
  if (metadata.at("best_loss").is_number()) stopping_.best_loss = metadata.at("best_loss");
  stopping_.best_epoch = metadata.at("best_epoch");
  stopping_.waited = metadata.at("waited");
  // Absent from checkpoints of earlier versions.
  scaler_.SetState(
      {.scale = metadata.value("loss_scale", scaler_.state().scale),
       .clean_steps = metadata.value("loss_scale_clean_steps", scaler_.state().clean_steps)});
  report_.skipped_steps = metadata.at("skipped_steps");
  report_.history = metadata.at("history").get<std::vector<std::string>>();
  report_.epochs = report_.resumed_after = checkpoint.epoch;
  report_.stopped_early = stopping_.ShouldStop();
  return absl::OkStatus();
}

}  // namespace

std::string EpochRecord::ToJson() const {
  nlohmann::ordered_json line = {{"epoch", epoch}, {"train_loss", train.loss}};
  for (const auto& [name, result] : validation) {
    line["val_" + name] = result.defined() ? nlohmann::ordered_json(result.value()) : nullptr;
  }
  line["seconds"] = train.seconds;
  line["samples"] = train.samples;
  line["skipped_steps"] = train.skipped_steps;
  return line.dump();
}

absl::StatusOr<TrainReport> Train(ProcessGroup& group, const TrainOptions& options,
                                  const TrainingTask& task, const TrainHooks& hooks) {
  MEDFUSION_RETURN_IF_ERROR(AgreeOnStatus(group, options.Check()));
  absl::StatusOr<TrainReport> report;
  MEDFUSION_RETURN_IF_ERROR(CatchAsStatus([&] {
    report = TrainRun(group, options, task, hooks).Run();
    return report.status();
  }));
  return report;
}

}  // namespace medfusion
