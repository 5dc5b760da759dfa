// Trains a classifier of clinical tables on any number of ranks. Without arguments: the Wisconsin
// breast cancer data, on two ranks that this program starts itself.
#include <ATen/Parallel.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <gflags/gflags.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "medfusion/base/status.h"
#include "medfusion/distributed/distributed.h"
#include "medfusion/launch/error_file.h"
#include "medfusion/launch/rank_count.h"
#include "medfusion/launch/spawn.h"
#include "medfusion/train/fusion_job.h"
#include "medfusion/train/model_strategy.h"
#include "tools/cpp/runfiles/runfiles.h"

DEFINE_string(
    strategy, "ddp",
    "how ranks share the work: none (one rank alone), ddp (each holds the whole model) or "
    "fsdp (each holds a part)");
DEFINE_string(sharding_strategy, "FULL_SHARD",
              "of fsdp: FULL_SHARD, SHARD_GRAD_OP, NO_SHARD or HYBRID_SHARD");
DEFINE_int64(min_num_params, 1'000'000,
             "of fsdp: a module with so many parameters is gathered on its own");
DEFINE_bool(activation_checkpointing, false,
            "run the encoders again in backward instead of keeping what they computed");
DEFINE_string(mixed_precision, "none",
              "what the model computes in: none (float32), bf16, or fp16 (with a scaled loss)");
DEFINE_string(backend, "auto", "what ranks communicate by: auto, gloo or nccl");
DEFINE_string(nproc_per_node, "auto",
              "ranks to start on this machine; auto: one per GPU, else two (one with "
              "--strategy=none). Ignored under torchrun, Slurm and mpirun");
DEFINE_int32(threads, 1,
             "that each rank computes with; 0: as OMP_NUM_THREADS says. More help wide models");
DEFINE_bool(prefix_output, false, "begin each line of output with its rank");
DEFINE_double(timeout, 600, "seconds after which waiting for another rank is an error");
DEFINE_bool(check_collectives, false,
            "compare every collective over the ranks before it starts: finds ranks that disagree");

DEFINE_string(data, "", "CSV file with a header; the breast cancer data when empty");
DEFINE_string(target, "diagnosis", "the column that says the class");
DEFINE_string(positive_class, "malignant", "the value of it that is to be found");
DEFINE_string(groups, "mean:mean_*;error:error_*;worst:worst_*",
              "the columns of each encoder: name:column,prefix_*;name:...");

DEFINE_int32(epochs, 40, "passes over the training data, at most");
DEFINE_int32(batch_size, 16, "samples per rank and forward");
DEFINE_int32(accumulate, 1, "forwards per optimizer step");
DEFINE_double(learning_rate, 3e-3, "of AdamW");
DEFINE_double(weight_decay, 1e-2, "of AdamW");
DEFINE_double(clip_norm, 0, "largest norm of the gradients; 0: any");
DEFINE_int64(seed, 0, "decides initial parameters and the order of samples");
DEFINE_int32(patience, 10, "end after so many epochs without a lower validation loss; 0: never");
DEFINE_string(on_nonfinite, "stop",
              "when a loss is NaN or infinite on any rank: stop all, or skip the step on all");

DEFINE_string(output_dir, "train_output",
              "gets history.jsonl, metrics.json and checkpoints/; relative to the caller's folder");
DEFINE_int32(save_interval, 5, "epochs between checkpoints; 0: none");
DEFINE_bool(resume, false, "go on from the newest checkpoint in output_dir, if there is one");

namespace {

using medfusion::FusionJobOptions;
using medfusion::StrategyOptions;
using medfusion::TrainReport;

constexpr char kUsage[] =
    "Trains a fusion classifier on a clinical table, by any number of ranks.\n\n"
    "  train                                         2 ranks, breast cancer data\n"
    "  train --nproc_per_node=4 --data=patients.csv --target=outcome --positive_class=yes \\\n"
    "        --groups='vitals:hr,bp_*;labs:lab_*'\n"
    "  torchrun --no-python --nproc_per_node=2 train\n"
    "  mpirun -n 2 train\n";

// gflags' own help would list the flags of all libraries.
void PrintHelp() {
  std::vector<gflags::CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);
  std::cout << kUsage << "\nFlags, also as lines of a file given by --flagfile:\n";
  for (const auto& flag : flags) {
    if (flag.filename != __FILE__) continue;
    const std::string value =
        flag.default_value.empty() ? "" : absl::StrCat(" (default ", flag.default_value, ")");
    std::cout << absl::StrFormat("  --%-16s %s%s\n", flag.name, flag.description, value);
  }
}

bool AsksForHelp(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-help" || argument == "-h") return true;
  }
  return false;
}

absl::StatusOr<std::string> DataPath() {
  if (!FLAGS_data.empty()) return FLAGS_data;
  using bazel::tools::cpp::runfiles::Runfiles;
  // Started directly, by torchrun or through a link: the files lie beside the program itself.
  std::error_code ignored;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  std::string error = "no runfiles folder";
  for (const bool by_environment : {false, true}) {
    const std::unique_ptr<Runfiles> runfiles(
        by_environment ? Runfiles::Create(self, &error) : Runfiles::Create(self, "", "", &error));
    if (runfiles == nullptr) continue;
    const std::string path = runfiles->Rlocation("medfusion/examples/data/breast_cancer.csv");
    if (!path.empty() && std::filesystem::exists(path)) return path;
  }
  return absl::NotFoundError(absl::StrCat("the breast cancer data is not beside ", self, " (",
                                          error, "); name a file by --data"));
}

absl::StatusOr<StrategyOptions> ReadStrategy() {
  StrategyOptions strategy;
  strategy.name = FLAGS_strategy;
  strategy.min_num_params = FLAGS_min_num_params;
  MEDFUSION_ASSIGN_OR_RETURN(strategy.sharding_strategy,
                             medfusion::ParseShardingStrategy(FLAGS_sharding_strategy));
  MEDFUSION_ASSIGN_OR_RETURN(strategy.mixed_precision,
                             medfusion::ParsePrecision(FLAGS_mixed_precision));
  MEDFUSION_RETURN_IF_ERROR(medfusion::CheckStrategy(strategy, 1));
  for (const char* flag : {"sharding_strategy", "min_num_params"}) {
    const auto info = gflags::GetCommandLineFlagInfoOrDie(flag);
    if (strategy.name == "fsdp" || info.is_default) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, "=", info.current_value, " is for strategy=fsdp, not ", strategy.name));
  }
  return strategy;
}

absl::StatusOr<FusionJobOptions> ReadOptions() {
  FusionJobOptions options;
  MEDFUSION_ASSIGN_OR_RETURN(options.data, DataPath());
  MEDFUSION_ASSIGN_OR_RETURN(options.strategy, ReadStrategy());
  options.activation_checkpointing = FLAGS_activation_checkpointing;
  options.target = FLAGS_target;
  options.positive_class = FLAGS_positive_class;
  options.groups = FLAGS_groups;
  options.output_dir = FLAGS_output_dir;
  options.progress = stdout;
  options.train.epochs = FLAGS_epochs;
  options.train.batch_size = FLAGS_batch_size;
  options.train.accumulate = FLAGS_accumulate;
  options.train.learning_rate = FLAGS_learning_rate;
  options.train.weight_decay = FLAGS_weight_decay;
  options.train.clip_norm = FLAGS_clip_norm;
  options.train.seed = FLAGS_seed;
  options.train.patience = FLAGS_patience;
  options.train.save_interval = FLAGS_save_interval;
  options.train.resume = FLAGS_resume;
  MEDFUSION_ASSIGN_OR_RETURN(options.train.on_nonfinite,
                             medfusion::ParseOnNonfinite(FLAGS_on_nonfinite));
  if (!(FLAGS_timeout > 0 && FLAGS_timeout < 1e6)) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout=", FLAGS_timeout, " is out of range; expected seconds above 0"));
  }
  MEDFUSION_RETURN_IF_ERROR(options.train.Check());
  return options;
}

// 1 when a launcher has started us already.
absl::StatusOr<int> RanksToStart() {
  MEDFUSION_ASSIGN_OR_RETURN(const auto environment, medfusion::ReadLaunchEnvironment());
  if (environment.source != "none") return 1;
  if (FLAGS_nproc_per_node == "auto" && FLAGS_strategy == "none") return 1;
  MEDFUSION_ASSIGN_OR_RETURN(const int ranks, medfusion::ParseRankCount(FLAGS_nproc_per_node));
  MEDFUSION_RETURN_IF_ERROR(medfusion::CheckStrategy({.name = FLAGS_strategy}, ranks));
  return ranks;
}

void PrintReport(const FusionJobOptions& options, const TrainReport& report) {
  const auto metric = [&](const char* name) { return report.test.at(name).ToString(); };
  std::cout << "test (epoch " << report.best_epoch << " of " << report.epochs << ", "
            << (report.stopped_early ? "stopped early" : "all trained") << "):  auroc "
            << metric("auroc") << "  accuracy " << metric("accuracy") << "  sensitivity "
            << metric("sensitivity") << "  specificity " << metric("specificity") << "  f1 "
            << metric("f1") << "\n";
  if (report.skipped_steps > 0) {
    std::cout << "skipped " << report.skipped_steps
              << " steps whose loss or gradients were not finite\n";
  }
  std::cout << "wrote " << options.output_dir << "/metrics.json and history.jsonl" << std::endl;
}

absl::Status RunRank(const FusionJobOptions& options) {
  if (FLAGS_threads > 0) at::set_num_threads(FLAGS_threads);
  medfusion::DistributedOptions distributed;
  distributed.backend = FLAGS_backend;
  distributed.group.timeout = std::chrono::milliseconds(static_cast<int64_t>(FLAGS_timeout * 1000));
  distributed.group.check_collectives = FLAGS_check_collectives;
  MEDFUSION_RETURN_IF_ERROR(medfusion::SetupDistributed(distributed).status());
  const auto report = medfusion::RunFusionJob(medfusion::DefaultGroup(), options);
  if (report.ok() && medfusion::IsMainProcess()) PrintReport(options, *report);
  const absl::Status left = medfusion::CleanupDistributed();
  return report.ok() ? left : report.status();
}

// Says what went wrong, to people and to the launcher.
int Fail(const absl::Status& status) {
  const char* rank = std::getenv("RANK");
  const std::string message(status.message());
  std::cerr << "train: " << (rank == nullptr ? "" : absl::StrCat("rank ", rank, ": ")) << message
            << std::endl;
  medfusion::WriteErrorFile(message);
  return medfusion::ExitCode(status);
}

int Run(int argc, char** argv, const std::vector<std::string>& command) {
  if (argc > 1) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("unexpected argument '", argv[1], "'; see --help")));
  }
  const auto options = ReadOptions();
  if (!options.ok()) return Fail(options.status());
  const auto ranks = RanksToStart();
  if (!ranks.ok()) return Fail(ranks.status());
  if (*ranks > 1) {
    return medfusion::SpawnRanks(
        {.num_ranks = *ranks, .arguments = command, .prefix_output = FLAGS_prefix_output});
  }
  const absl::Status status = RunRank(*options);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> command(argv, argv + argc);
  // `bazel run` starts programs in their runfiles; paths are the caller's, --flagfile's included.
  const char* caller = std::getenv("BUILD_WORKING_DIRECTORY");
  if (caller != nullptr && chdir(caller) != 0) {
    return Fail(absl::NotFoundError(absl::StrCat("cannot go to folder ", caller)));
  }
  if (AsksForHelp(argc, argv)) {
    PrintHelp();
    return 0;
  }
  gflags::SetUsageMessage(kUsage);
  gflags::ParseCommandLineFlags(&argc, &argv, /*remove_flags=*/true);
  return Run(argc, argv, command);
}
