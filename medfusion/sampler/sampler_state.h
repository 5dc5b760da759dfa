// Where a DistributedSampler stands within its epoch, for checkpoints.
#ifndef MEDFUSION_SAMPLER_SAMPLER_STATE_H_
#define MEDFUSION_SAMPLER_SAMPLER_STATE_H_

#include <absl/status/statusor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace medfusion {

// How the samples of an epoch are dealt to the replicas.
enum class SamplerMode {
  // As PyTorch does: every replica reads equally many. Samples are repeated from the beginning of
  // the epoch's order to make that so, or dropped from its end (drop_last). For training.
  kPadded = 0,
  // Every sample once over all replicas; their numbers differ by one at most. For evaluation.
  kExactlyOnce = 1,
};

// One stretch of an epoch that was read with one number of replicas.
struct SamplerPass {
  int64_t num_replicas = 1;
  // Samples read so far in this pass: by each replica, in the order of ranks, or one entry that
  // holds for all of them (a replica that had fewer has then read all it had).
  std::vector<int64_t> positions;

  friend bool operator==(const SamplerPass&, const SamplerPass&) = default;
};

// A plain value. Of one replica as DistributedSampler::State() reports it, or of all of them as
// MergeSamplerStates makes it.
struct SamplerState {
  int64_t size = 0;
  int64_t seed = 0;
  int64_t epoch = 0;
  bool shuffle = true;
  bool drop_last = false;
  SamplerMode mode = SamplerMode::kPadded;
  // The rank that reported the last pass's position; -1 where that holds for all.
  int64_t rank = -1;
  // At least one. The first began the epoch; each further one began when a state was restored at
  // another number of replicas; the last one is in progress.
  std::vector<SamplerPass> passes;

  // Everything above as numbers, for a checkpoint's manifest or a tensor.
  std::vector<int64_t> ToVector() const;

  // The reverse. InvalidArgumentError for numbers that are not laid out as ToVector does; what they
  // say is checked by DistributedSampler::Restore, against the data at hand.
  static absl::StatusOr<SamplerState> FromVector(std::span<const int64_t> values);

  friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

// The state of all replicas, from the one that each of them reported, in any order. Needed where
// replicas may stand at different places, as in an exactly-once epoch whose ranks go at their own
// pace; replicas in lockstep need no merging, for each one's state holds for all.
// InvalidArgumentError unless there is one from each rank and they are of the same epoch.
absl::StatusOr<SamplerState> MergeSamplerStates(std::span<const SamplerState> states);

}  // namespace medfusion

#endif  // MEDFUSION_SAMPLER_SAMPLER_STATE_H_
