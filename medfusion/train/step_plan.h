// How an epoch's samples are cut into optimizer steps, the same for any number of ranks. Pure.
#ifndef MEDFUSION_TRAIN_STEP_PLAN_H_
#define MEDFUSION_TRAIN_STEP_PLAN_H_

#include <algorithm>
#include <cstdint>

namespace medfusion {

// Note [The same result on any number of ranks]
// The global order of an epoch depends on seed and epoch alone, and an exactly-once
// DistributedSampler deals it in turn, so that the ranks' k-th batches together are one range of
// that order: the batch that a single rank with the joint batch size would read. Nothing is
// repeated or dropped; at the end of an epoch ranks may hold fewer samples than others, or none.
// DDP averages over ranks, which would be wrong for such batches: so each rank's loss is the sum
// over its samples, times ranks / samples of the whole step, a number that this plan gives without
// communication. A rank without samples runs one all the same, with weight 0, to take part in the
// collectives.
class StepPlan {
 public:
  // All at least 1, but samples may be 0.
  StepPlan(int64_t samples, int64_t batch_size, int64_t num_ranks, int64_t accumulate)
      : samples_(samples), joint_batch_(batch_size * num_ranks), accumulate_(accumulate) {}

  // Batches of each rank in an epoch.
  int64_t batches() const { return (samples_ + joint_batch_ - 1) / joint_batch_; }
  int64_t steps() const { return (batches() + accumulate_ - 1) / accumulate_; }
  // Of step 0 <= step < steps(), over all ranks; fewer in the last one.
  int64_t BatchesOf(int64_t step) const {
    return std::min(accumulate_, batches() - step * accumulate_);
  }
  int64_t SamplesOf(int64_t step) const {
    const int64_t full = joint_batch_ * accumulate_;
    return std::min(full, samples_ - step * full);
  }

 private:
  int64_t samples_;
  int64_t joint_batch_;
  int64_t accumulate_;
};

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_STEP_PLAN_H_
