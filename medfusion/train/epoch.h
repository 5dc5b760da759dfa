// One pass over the data: to train on it, or to measure.
#ifndef MEDFUSION_TRAIN_EPOCH_H_
#define MEDFUSION_TRAIN_EPOCH_H_

#include <absl/status/statusor.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "medfusion/data/batch.h"
#include "medfusion/data/split.h"
#include "medfusion/distributed/process_group.h"
#include "medfusion/metrics/metric_set.h"
#include "medfusion/optim/grad_scaler.h"
#include "medfusion/sampler/distributed_sampler.h"
#include "medfusion/train/evaluator.h"
#include "medfusion/train/model_strategy.h"
#include "medfusion/train/options.h"

namespace medfusion {

// After each optimizer step; the same on all ranks.
struct StepInfo {
  int64_t epoch = 0;  // from 1
  int64_t step = 0;   // of this epoch, from 1
  int64_t steps = 0;  // in an epoch
  double loss = 0;    // the mean over the step's samples of all ranks
  bool skipped = false;
};

// What is trained and on what. The functions are called by the training thread; what they throw
// ends the run on all ranks.
struct TrainingTask {
  // Borrowed. Its parameters are optimized.
  ModelStrategy* model = nullptr;
  // The outputs for a batch of n samples, on the group's device.
  std::function<at::Tensor(const Batch& batch)> forward;
  // The loss of each sample, [n].
  std::function<at::Tensor(const at::Tensor& outputs, const Batch& batch)> losses;
  // The samples at these positions; on any device.
  std::function<Batch(std::span<const size_t> indices)> fetch;
  // Positions of the samples of each part, the same on all ranks. Training needs some; validation
  // and test may be empty.
  Split split;
  // A fresh one for each pass over validation or test samples.
  std::function<std::unique_ptr<Evaluator>()> evaluator;
  // May be empty.
  std::function<void(const StepInfo&)> on_step;
};

struct EpochTotals {
  double loss = 0;      // the mean over all samples that were trained on
  int64_t samples = 0;  // of all ranks
  int64_t steps = 0;    // that were taken
  int64_t skipped_steps = 0;
  double seconds = 0;  // of the slowest rank
};

// Collective. Trains on the rest of `sampler`'s epoch (exactly-once mode, over the positions in
// split.train), with the loss scaled by `scaler`. See Note [The same result on any number of
// ranks]. Errors are the same on all ranks that can know; FailedPrecondition for a loss that is not
// finite. Gradients that overflow because of the loss's scale are no error: their steps are
// skipped, and the scale gets smaller.
absl::StatusOr<EpochTotals> TrainEpoch(ProcessGroup& group, const TrainOptions& options,
                                       const TrainingTask& task, torch::optim::Optimizer& optimizer,
                                       GradScaler& scaler, DistributedSampler& sampler);

// Collective. The metrics of the samples at `positions`, each counted once. The model is in eval
// mode meanwhile, and then as it was. Every rank runs as many batches, so that a strategy may
// communicate in forward.
absl::StatusOr<MetricResults> Evaluate(ProcessGroup& group, int64_t batch_size,
                                       const TrainingTask& task, std::span<const size_t> positions);

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_EPOCH_H_
