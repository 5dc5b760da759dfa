// The job of the train program: a table of patients, a fusion classifier, a run over all ranks.
#ifndef MEDFUSION_TRAIN_FUSION_JOB_H_
#define MEDFUSION_TRAIN_FUSION_JOB_H_

#include <absl/status/statusor.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "medfusion/data/split.h"
#include "medfusion/distributed/process_group.h"
#include "medfusion/train/model_strategy.h"
#include "medfusion/train/options.h"
#include "medfusion/train/trainer.h"

namespace medfusion {

struct FusionJobOptions {
  TrainOptions train;
  StrategyOptions strategy;

  // A CSV file, read by every rank; see medfusion/data/csv.h. Two classes.
  std::string data;
  std::string target = "diagnosis";
  std::string positive_class = "malignant";
  // Which columns each encoder sees; see ParseFeatureGroups.
  std::string groups = "mean:mean_*;error:error_*;worst:worst_*";
  // The encoders' hidden layers run again in backward instead of keeping what they computed; the
  // result is the same to the bit.
  bool activation_checkpointing = false;
  // The split depends on these alone, not on the run's seed: runs can be compared.
  SplitFractions fractions;
  uint64_t split_seed = 0;

  // Made if needed, written by rank 0: history.jsonl (a line per epoch), metrics.json (at the end)
  // and checkpoints/. Each file is replaced as a whole.
  std::string output_dir = "train_output";
  // Where rank 0 shows its progress; null for nowhere.
  std::FILE* progress = nullptr;
};

// Collective. Splits the data by class, standardises it with the statistics of the training part,
// trains and tests. All ranks return the same report, or an error that all that can know share:
// also one that only one rank met, such as a file that only it cannot read, and options or data
// that differ between ranks.
absl::StatusOr<TrainReport> RunFusionJob(const std::shared_ptr<ProcessGroup>& group,
                                         const FusionJobOptions& options);

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_FUSION_JOB_H_
