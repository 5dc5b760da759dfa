#include "medfusion/train/fusion_job.h"

#include <ATen/Context.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "medfusion/base/atomic_file.h"
#include "medfusion/base/status.h"
#include "medfusion/data/csv.h"
#include "medfusion/data/feature_groups.h"
#include "medfusion/data/standardizer.h"
#include "medfusion/data/tabular_dataset.h"
#include "medfusion/distributed/agreement.h"
#include "medfusion/models/fusion_classifier.h"
#include "medfusion/train/distributed_model.h"
#include "medfusion/train/progress.h"
#include "medfusion/train/same_settings.h"

namespace medfusion {
namespace {

struct FusionData {
  TabularDataset dataset;  // standardised
  Standardizer standardizer;
  Split split;
  std::vector<FeatureGroup> groups;
  std::string fingerprint;
};

// FNV-1a, to tell different data apart, not to resist forgery.
uint64_t Hash(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325ULL) {
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3ULL;
  return hash;
}

std::string_view BytesOf(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

absl::StatusOr<FusionData> Load(const FusionJobOptions& options) {
  MEDFUSION_ASSIGN_OR_RETURN(const Table table,
                             ReadCsv(options.data, {.text_columns = {options.target}}));
  MEDFUSION_ASSIGN_OR_RETURN(
      TabularDataset raw,
      TabularDataset::Create(table, {.target = options.target,
                                     .positive_class = options.positive_class,
                                     .missing = TabularOptions::Missing::kKeep}));
  MEDFUSION_ASSIGN_OR_RETURN(const auto specs, ParseFeatureGroups(options.groups));
  MEDFUSION_ASSIGN_OR_RETURN(auto groups, SelectFeatureGroups(raw.feature_names(), specs));
  MEDFUSION_ASSIGN_OR_RETURN(Split split,
                             StratifiedSplit(raw.labels(), options.fractions, options.split_seed));
  MEDFUSION_ASSIGN_OR_RETURN(Standardizer standardizer,
                             Standardizer::Fit(raw.features(), split.train));
  const uint64_t hash =
      Hash(BytesOf(raw.targets().contiguous()), Hash(BytesOf(raw.features().contiguous())));
  std::string fingerprint = absl::StrFormat("%d samples with hash %016x", raw.size(), hash);
  TabularDataset dataset = raw.Standardized(standardizer);
  return FusionData{std::move(dataset), std::move(standardizer), std::move(split),
                    std::move(groups), std::move(fingerprint)};
}

// The same on all ranks and in every run: threads that are ranks take turns with the one generator.
FusionClassifier MakeModel(const FusionData& data, const FusionJobOptions& options) {
  static std::mutex generator;
  const std::lock_guard<std::mutex> lock(generator);
  at::manual_seed(static_cast<uint64_t>(options.train.seed));
  // No dropout: its masks would depend on the number of ranks.
  return FusionClassifier(FusionClassifierOptions{
      .groups = GroupColumns(data.groups),
      .encoder = {.activation_checkpointing = options.activation_checkpointing}});
}

absl::Status RequireSameJob(ProcessGroup& group, const FusionJobOptions& options,
                            const FusionData& data) {
  auto settings = options.train.Settings();
  for (auto& setting : options.strategy.Settings()) settings.push_back(std::move(setting));
  settings.emplace_back("groups", options.groups);
  settings.emplace_back("activation_checkpointing",
                        options.activation_checkpointing ? "true" : "false");
  settings.emplace_back(
      "split", absl::StrCat(options.fractions.train, "/", options.fractions.validation, "/",
                            options.fractions.test, " by seed ", options.split_seed));
  settings.emplace_back("data", data.fingerprint);
  return RequireSameSettings(group, settings);
}

absl::Status WriteHistory(const std::string& folder, const std::vector<std::string>& lines) {
  return WriteFileAtomically(folder + "/history.jsonl", absl::StrJoin(lines, "\n") + "\n");
}

absl::Status WriteMetrics(const FusionJobOptions& options, const FusionData& data, int world_size,
                          const TrainReport& report) {
  nlohmann::ordered_json test;
  for (const char* name : {"auroc", "accuracy", "sensitivity", "specificity", "f1"}) {
    const MetricResult& result = report.test.at(name);
    test[name] = result.defined() ? nlohmann::ordered_json(result.value()) : nullptr;
  }
  const nlohmann::ordered_json metrics = {
      {"strategy", options.strategy.name},
      {"mixed_precision", PrecisionName(options.strategy.mixed_precision)},
      {"world_size", world_size},
      {"seed", options.train.seed},
      {"splits",
       {{"train", data.split.train.size()},
        {"validation", data.split.validation.size()},
        {"test", data.split.test.size()}}},
      {"epochs", report.epochs},
      {"best_epoch", report.best_epoch},
      {"skipped_steps", report.skipped_steps},
      {"test", test}};
  return WriteFileAtomically(options.output_dir + "/metrics.json", metrics.dump(2) + "\n");
}

// The whole job, where exceptions may pass.
absl::StatusOr<TrainReport> Run(const std::shared_ptr<ProcessGroup>& group,
                                const FusionJobOptions& options) {
  MEDFUSION_RETURN_IF_ERROR(AgreeOnStatus(*group, options.train.Check()));
  auto loaded = Load(options);
  MEDFUSION_RETURN_IF_ERROR(AgreeOnStatus(*group, loaded.status()));
  const FusionData& data = *loaded;
  MEDFUSION_RETURN_IF_ERROR(RequireSameJob(*group, options, data));
  const bool main = group->rank() == 0;
  MEDFUSION_RETURN_IF_ERROR(
      AgreeOnStatus(*group, main ? MakeFolders(options.output_dir) : absl::OkStatus()));

  MEDFUSION_ASSIGN_OR_RETURN(
      const auto model, CreateDistributedModel(MakeModel(data, options), options.strategy, group));
  Progress progress(main ? options.progress : nullptr, options.train.epochs);
  const TrainingTask task = {
      .model = model.get(),
      .forward = [&](const Batch& batch) { return model->forward(batch.features); },
      .losses =
          [](const at::Tensor& logits, const Batch& batch) {
            return at::cross_entropy_loss(logits, batch.targets, {}, at::Reduction::None);
          },
      .fetch = [&](std::span<const size_t> indices) { return data.dataset.Get(indices); },
      .split = data.split,
      .evaluator = [] { return std::make_unique<BinaryEvaluator>(); },
      .on_step = [&](const StepInfo& step) { progress.Step(step); }};
  const auto checkpoints = MakeFileCheckpointStore(options.output_dir + "/checkpoints", *group);
  const TrainHooks hooks = {
      .on_begin =
          [&](int64_t resumed_after) {
            if (!options.train.resume) return;
            progress.Say(resumed_after > 0
                             ? absl::StrCat("resumed after epoch ", resumed_after)
                             : absl::StrCat("no checkpoint in ", options.output_dir,
                                            "/checkpoints: starting from the beginning"));
          },
      .on_epoch = [&](const EpochRecord& record,
                      const std::vector<std::string>& history) -> absl::Status {
        progress.Epoch(record);
        return main ? WriteHistory(options.output_dir, history) : absl::OkStatus();
      },
      .checkpoints = checkpoints.get(),
      .constants = data.standardizer.state()};
  progress.Say(absl::StrFormat(
      "%s: %d to train, %d to validate, %d to test; %s on %d rank%s, batch %d x %d x %d",
      options.data, data.split.train.size(), data.split.validation.size(), data.split.test.size(),
      options.strategy.Describe(), group->size(), group->size() > 1 ? "s" : "",
      options.train.batch_size, group->size(), options.train.accumulate));
  MEDFUSION_ASSIGN_OR_RETURN(TrainReport report, Train(*group, options.train, task, hooks));
  MEDFUSION_RETURN_IF_ERROR(AgreeOnStatus(
      *group, main ? WriteMetrics(options, data, group->size(), report) : absl::OkStatus()));
  return report;
}

}  // namespace

absl::StatusOr<TrainReport> RunFusionJob(const std::shared_ptr<ProcessGroup>& group,
                                         const FusionJobOptions& options) {
  absl::StatusOr<TrainReport> report;
  MEDFUSION_RETURN_IF_ERROR(CatchAsStatus([&] {
    report = Run(group, options);
    return report.status();
  }));
  return report;
}

}  // namespace medfusion
