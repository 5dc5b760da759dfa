// Deals a dataset's samples to the replicas of a data-parallel job, as PyTorch does, and can go on
// in the middle of an epoch.
#ifndef MEDFUSION_SAMPLER_DISTRIBUTED_SAMPLER_H_
#define MEDFUSION_SAMPLER_DISTRIBUTED_SAMPLER_H_

#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "medfusion/sampler/epoch_plan.h"
#include "medfusion/sampler/sampler_state.h"

namespace medfusion {

struct SamplerOptions {
  // A new order for each epoch; without it the order is 0, 1, 2 ...
  bool shuffle = true;
  // With the epoch it decides the order; the same on all ranks. As in PyTorch only the low 32 bits
  // of seed + epoch count.
  int64_t seed = 0;
  // In kPadded mode: leave out the last size % num_replicas samples of the order, repeat none.
  bool drop_last = false;
  SamplerMode mode = SamplerMode::kPadded;
};

// Gives rank `rank` its share of the indices 0..size-1, epoch by epoch.
//
// In kPadded mode the indices are those of torch.utils.data.DistributedSampler, one for one and in
// order, for the same arguments. In kExactlyOnce mode ranks may read different numbers of samples
// and hence batches: do nothing collective per batch, and reduce results once, after the last one.
//
// Needs two integers and no process group: nothing here is collective. Ranks that were built with
// the same arguments and are told the same epochs agree. Not thread safe; copyable, and a copy goes
// its own way. Shuffling takes 4 bytes per sample (8 beyond 2^32 samples) while an epoch's order is
// made, and 4 bytes per sample of this rank afterwards; without shuffling nothing is held.
class DistributedSampler {
 public:
  // Throws std::invalid_argument that names the value unless size >= 0, num_replicas >= 1 and
  // 0 <= rank < num_replicas; and for drop_last in kExactlyOnce mode. Starts at epoch 0. A size of
  // 0 is fine and gives nothing, as in PyTorch.
  DistributedSampler(int64_t size, int64_t num_replicas, int64_t rank, SamplerOptions options = {});

  // Goes to the beginning of an epoch. Call it on all ranks before each one: without it every epoch
  // has the same order. Right after Restore, with the restored epoch, it changes nothing, so that
  // the usual loop (set the epoch, read it) goes on where the checkpoint was made.
  void SetEpoch(int64_t epoch);

  // Goes to the beginning of the present epoch. Right after Restore it changes nothing: what was
  // restored is read first. Once Next has been called, it is a whole epoch again.
  void Reset();

  // The next indices of this rank: `batch_size` of them, fewer at the end, std::nullopt after it.
  // Throws std::invalid_argument for a batch_size of 0.
  std::optional<std::vector<size_t>> Next(size_t batch_size);

  // Samples of this rank in this pass (PyTorch's len(sampler)): the whole epoch or, after Restore
  // at another number of replicas, this rank's part of the rest.
  int64_t size() const { return plan_.length(rank_); }
  // How many of them Next has given, or had been read before Restore.
  int64_t position() const { return position_; }

  int64_t dataset_size() const { return dataset_size_; }
  int64_t num_replicas() const { return num_replicas_; }
  int64_t rank() const { return rank_; }
  int64_t epoch() const { return epoch_; }
  const SamplerOptions& options() const { return options_; }

  // Where this rank stands, for a checkpoint. Any one rank's state serves for all if they advance
  // in lockstep, as training does; otherwise MergeSamplerStates puts them together.
  SamplerState State() const;

  // The same, as if Next had given only `samples` indices since the last SetEpoch, Reset or
  // Restore. For loaders that read ahead: count what was trained on. Throws std::invalid_argument
  // if Next has not given as many.
  SamplerState StateAfter(int64_t samples) const;

  // Goes on where `state` was taken. Seed and epoch are taken from it.
  // - At the same number of replicas each rank's indices are those that the uninterrupted epoch
  //   would have given, repeats included.
  // - At another number the ranks together read every sample of that epoch which no rank had read,
  //   once. kPadded repeats the first of those as often as equal lengths need; with drop_last see
  //   Note [Dropping from the rest].
  // Give every rank the same state (of any one rank, or the merged one), or at the same number of
  // replicas each rank its own. The next epoch is whole again.
  // InvalidArgumentError, with nothing changed, if the state is of a dataset of another size, of
  // other options than the seed, or not possible.
  absl::Status Restore(const SamplerState& state);

 private:
  void BeginEpoch();
  void MakeOrder();
  template <typename Index>
  void MakeOrder(std::vector<Index>* own);
  size_t IndexAt(int64_t k) const;

  int64_t dataset_size_;
  int64_t num_replicas_;
  int64_t rank_;
  SamplerOptions options_;
  int64_t epoch_ = 0;

  EpochPlan plan_;
  std::vector<SamplerPass> past_;  // finished passes of this epoch, before the present one
  int64_t start_ = 0;              // position at the last SetEpoch, Reset or Restore
  int64_t position_ = 0;
  bool restored_ = false;  // and Next has not been called since

  // This rank's indices in shuffled order, made by the first Next; one of the two is in use.
  bool ordered_ = false;
  std::vector<uint32_t> narrow_;
  std::vector<uint64_t> wide_;
};

}  // namespace medfusion

#endif  // MEDFUSION_SAMPLER_DISTRIBUTED_SAMPLER_H_
