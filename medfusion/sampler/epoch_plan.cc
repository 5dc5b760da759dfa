#include "medfusion/sampler/epoch_plan.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <limits>

#include "medfusion/base/status.h"

namespace medfusion {

EpochPlan::EpochPlan(int64_t size, int64_t num_replicas, SamplerMode mode, bool drop_last)
    : size_(size), mode_(mode), drop_last_(drop_last), end_(size) {
  if (drop_last_) end_ -= size_ % num_replicas;
  Deal(num_replicas);
}

// Note [Dropping from the rest]
// drop_last promises equal lengths without repeats. What is left of an epoch may not divide by
// another number of replicas; it is then filled up with places that the epoch as begun would have
// dropped. Only where those do not suffice, fewer than num_replicas places are dropped.
void EpochPlan::Deal(int64_t num_replicas) {
  num_replicas_ = num_replicas;
  wanted_ = static_cast<int64_t>(gaps_.size()) + std::max<int64_t>(0, end_ - begin_);
  total_ = wanted_;
  if (mode_ == SamplerMode::kExactlyOnce) return;
  total_ = CeilDivide(wanted_, num_replicas) * num_replicas;
  if (drop_last_) {
    total_ = std::min(total_, unread() - unread() % num_replicas);
    wanted_ = total_;
  }
}

absl::StatusOr<EpochPlan> EpochPlan::Of(const SamplerState& state) {
  if (state.size < 0 || state.passes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampler state: size=", state.size, " with ", state.passes.size(),
                     " passes; expected a size >= 0 and at least one pass"));
  }
  for (const SamplerPass& pass : state.passes) {
    if (pass.num_replicas < 1 || pass.num_replicas > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sampler state: num_replicas=", pass.num_replicas, "; expected 1..2147483647"));
    }
  }
  EpochPlan plan(state.size, state.passes[0].num_replicas, state.mode, state.drop_last);
  for (size_t i = 0; i < state.passes.size(); ++i) {
    const std::vector<int64_t>& positions = state.passes[i].positions;
    MEDFUSION_RETURN_IF_ERROR(plan.CheckPositions(positions));
    if (i + 1 < state.passes.size()) {
      plan = plan.Rest(positions, state.passes[i + 1].num_replicas);
    }
  }
  return plan;
}

EpochPlan EpochPlan::Rest(std::span<const int64_t> positions, int64_t num_replicas) const {
  int64_t first = total_;  // turns below this one were all taken
  int64_t last = 0;        // and none from this one on
  const int64_t ranks = std::min(num_replicas_, total_);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const int64_t read = PositionOf(positions, rank);
    if (read < length(rank)) first = std::min(first, rank + read * num_replicas_);
    if (read > 0) last = std::max(last, rank + (read - 1) * num_replicas_ + 1);
  }

  const int64_t window_begin = std::min(first, unread());
  const int64_t window_end = std::min(last, unread());
  std::vector<bool> read(window_end - window_begin, false);
  for (int64_t turn = first; turn < last; ++turn) {
    const int64_t rank = turn % num_replicas_;
    if (turn / num_replicas_ >= PositionOf(positions, rank)) continue;
    const int64_t i = turn < wanted_ ? turn : Repeated(turn);
    if (i >= window_begin) read[i - window_begin] = true;
  }

  EpochPlan rest = *this;
  rest.gaps_.clear();
  for (int64_t i = window_begin; i < window_end; ++i) {
    if (!read[i - window_begin]) rest.gaps_.push_back(UnreadPlace(i));
  }
  const int64_t gaps = static_cast<int64_t>(gaps_.size());
  for (int64_t i = window_end; i < gaps; ++i) rest.gaps_.push_back(gaps_[i]);
  rest.begin_ = begin_ + std::max<int64_t>(0, window_end - gaps);
  rest.Deal(num_replicas);
  return rest;
}

absl::Status EpochPlan::CheckPositions(std::span<const int64_t> positions) const {
  const int64_t count = static_cast<int64_t>(positions.size());
  if (count != 1 && count != num_replicas_) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampler state: ", count, " positions for ", num_replicas_,
                     " replicas; expected 1 (all in lockstep) or one for each"));
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t most = count == 1 ? length(0) : length(i);
    if (positions[i] < 0 || positions[i] > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("sampler state: position ", positions[i], " of replica ", i, " of ",
                       num_replicas_, "; expected 0..", most, " for a dataset of ", size_,
                       " samples. The state is damaged or was put together wrongly"));
    }
  }
  return absl::OkStatus();
}

int64_t EpochPlan::PositionOf(std::span<const int64_t> positions, int64_t rank) const {
  return std::min(positions.size() == 1 ? positions[0] : positions[rank], length(rank));
}

int64_t EpochPlan::UnreadPlace(int64_t i) const {
  const int64_t gaps = static_cast<int64_t>(gaps_.size());
  return i < gaps ? gaps_[i] : begin_ + i - gaps;
}

int64_t EpochPlan::Repeated(int64_t turn) const { return turn % wanted_; }

}  // namespace medfusion
