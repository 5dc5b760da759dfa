// Which places of an epoch's order each replica reads: pure arithmetic, without the order itself.
#ifndef MEDFUSION_SAMPLER_EPOCH_PLAN_H_
#define MEDFUSION_SAMPLER_EPOCH_PLAN_H_

#include <absl/status/statusor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "medfusion/sampler/sampler_state.h"

namespace medfusion {

// Note [The rest of an epoch]
// The places 0..size-1 of an epoch's order which nobody has read are dealt to the replicas in
// turn: replica r takes turns r, r + num_replicas, r + 2 * num_replicas and so on. Replicas that
// advance in lockstep leave one range unread. Replicas that do not leave gaps before it as well,
// no more than they are apart. So a list of gaps and one range say it all, and dealing what is left
// to another number of replicas is the same step again.
class EpochPlan {
 public:
  // A whole epoch. Requires size >= 0 and num_replicas >= 1.
  EpochPlan(int64_t size, int64_t num_replicas, SamplerMode mode, bool drop_last);

  // The epoch of `state`, dealt as its last pass deals it. InvalidArgumentError for a position or a
  // number of replicas that is not possible.
  static absl::StatusOr<EpochPlan> Of(const SamplerState& state);

  // What is left, dealt to `num_replicas` replicas, once those of this plan have read `positions`
  // (as in SamplerPass; CheckPositions has passed). A place counts as read when any repeat of it
  // was; repeats are never left over.
  EpochPlan Rest(std::span<const int64_t> positions, int64_t num_replicas) const;

  // InvalidArgumentError unless `positions` has one entry, or one per replica, within its length.
  absl::Status CheckPositions(std::span<const int64_t> positions) const;

  // How much of `positions` is `rank`'s.
  int64_t PositionOf(std::span<const int64_t> positions, int64_t rank) const;

  int64_t num_replicas() const { return num_replicas_; }

  // Turns of all replicas together, repeats included.
  int64_t total() const { return total_; }

  // Turns of one replica.
  int64_t length(int64_t rank) const { return CeilDivide(total_ - rank, num_replicas_); }

  // The place read at `turn`, 0 <= turn < total().
  int64_t place(int64_t turn) const { return UnreadPlace(turn < wanted_ ? turn : Repeated(turn)); }

 private:
  static int64_t CeilDivide(int64_t a, int64_t b) { return a <= 0 ? 0 : (a - 1) / b + 1; }
  int64_t unread() const { return static_cast<int64_t>(gaps_.size()) + size_ - begin_; }
  int64_t UnreadPlace(int64_t i) const;
  int64_t Repeated(int64_t turn) const;
  void Deal(int64_t num_replicas);

  int64_t size_;
  SamplerMode mode_;
  bool drop_last_;
  int64_t end_;                // the epoch as begun reads the places below this one
  std::vector<int64_t> gaps_;  // unread places below begin_, ascending
  int64_t begin_ = 0;          // every place from here on is unread
  int64_t num_replicas_ = 1;
  int64_t wanted_ = 0;  // unread places that are dealt before any is repeated
  int64_t total_ = 0;
};

}  // namespace medfusion

#endif  // MEDFUSION_SAMPLER_EPOCH_PLAN_H_
