// A whole training run: epochs, validation, early stopping, checkpoints, the final test.
#ifndef MEDFUSION_TRAIN_TRAINER_H_
#define MEDFUSION_TRAIN_TRAINER_H_

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "medfusion/distributed/process_group.h"
#include "medfusion/metrics/metric_set.h"
#include "medfusion/train/epoch.h"
#include "medfusion/train/options.h"
#include "medfusion/train/train_checkpoint.h"
#include "medfusion/train/train_state.h"

namespace medfusion {

// One epoch, for people and for history.jsonl. The same on all ranks.
struct EpochRecord {
  int64_t epoch = 0;  // from 1
  EpochTotals train;
  MetricResults validation;
  bool best = false;  // the lowest validation loss so far

  // One line of JSON: epoch, train_loss, val_loss and further val_..., seconds, samples,
  // skipped_steps; an undefined metric is null.
  std::string ToJson() const;
};

struct TrainHooks {
  // Before the first epoch; `resumed_after` is the epoch of the checkpoint that was taken up, or 0.
  // May be empty.
  std::function<void(int64_t resumed_after)> on_begin;
  // After each epoch, with the lines of all epochs so far, those before a resumption included. An
  // error on any rank ends the run on all. May be empty.
  std::function<absl::Status(const EpochRecord&, const std::vector<std::string>& history)> on_epoch;
  // Where checkpoints go; null for nowhere. Borrowed.
  TrainCheckpointStore* checkpoints = nullptr;
  // Stored in each checkpoint, and the same when it is taken up: what the data looked like.
  NamedTensors constants;
};

struct TrainReport {
  int64_t resumed_after = 0;  // the epoch of the checkpoint that was taken up, or 0
  int64_t epochs = 0;         // that were trained, those before a resumption included
  int64_t best_epoch = 0;
  bool stopped_early = false;
  int64_t skipped_steps = 0;
  // Of the best epoch's parameters, which the model holds afterwards. Empty without test samples.
  MetricResults test;
  std::vector<std::string> history;
};

// Collective. Trains task.model with AdamW as `options` says. All ranks return the same report, or
// an error that all that can know share. A run that is taken up by options.resume on as many ranks
// ends, to the bit, as the uninterrupted one would have.
//
// Random numbers (dropout) of an epoch follow from seed, epoch and rank, so a checkpoint, which is
// made between epochs, needs no generator's state.
absl::StatusOr<TrainReport> Train(ProcessGroup& group, const TrainOptions& options,
                                  const TrainingTask& task, const TrainHooks& hooks = {});

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_TRAINER_H_
