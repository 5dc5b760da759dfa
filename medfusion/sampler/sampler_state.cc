#include "medfusion/sampler/sampler_state.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace medfusion {
namespace {

// The first number of every vector: the layout of what follows.
constexpr int64_t kLayout = 1;

// Takes numbers off the front, and remembers whether there were enough.
class Reader {
 public:
  explicit Reader(std::span<const int64_t> values) : values_(values) {}

  int64_t Take() {
    if (values_.empty()) {
      complete_ = false;
      return 0;
    }
    const int64_t value = values_.front();
    values_ = values_.subspan(1);
    return value;
  }
  // A number of entries to follow, each of which takes `width` numbers or more.
  int64_t TakeCount(int64_t width) {
    const int64_t count = Take();
    const int64_t most = static_cast<int64_t>(values_.size()) / width;
    if (count < 0 || count > most) complete_ = false;
    return complete_ ? count : 0;
  }
  bool TakeBool() {
    const int64_t value = Take();
    if (value != 0 && value != 1) complete_ = false;
    return value == 1;
  }
  bool exhausted() const { return complete_ && values_.empty(); }

 private:
  std::span<const int64_t> values_;
  bool complete_ = true;
};

absl::Status Damaged(std::span<const int64_t> values) {
  return absl::InvalidArgumentError(
      absl::StrCat("sampler state: ", values.size(),
                   " numbers that SamplerState::ToVector cannot have made (cut short, too long or "
                   "with an impossible count or flag); take the state from another checkpoint"));
}

}  // namespace

std::vector<int64_t> SamplerState::ToVector() const {
  std::vector<int64_t> values = {kLayout,
                                 size,
                                 seed,
                                 epoch,
                                 shuffle,
                                 drop_last,
                                 static_cast<int64_t>(mode),
                                 rank,
                                 static_cast<int64_t>(passes.size())};
  for (const SamplerPass& pass : passes) {
    values.push_back(pass.num_replicas);
    values.push_back(static_cast<int64_t>(pass.positions.size()));
    values.insert(values.end(), pass.positions.begin(), pass.positions.end());
  }
  return values;
}

absl::StatusOr<SamplerState> SamplerState::FromVector(std::span<const int64_t> values) {
  Reader reader(values);
  if (const int64_t layout = reader.Take(); !values.empty() && layout != kLayout) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampler state: layout ", layout, "; this version reads layout ", kLayout,
                     ". It is not a sampler's state, or a newer version wrote it"));
  }
  SamplerState state;
  state.size = reader.Take();
  state.seed = reader.Take();
  state.epoch = reader.Take();
  state.shuffle = reader.TakeBool();
  state.drop_last = reader.TakeBool();
  state.mode = reader.TakeBool() ? SamplerMode::kExactlyOnce : SamplerMode::kPadded;
  state.rank = reader.Take();
  const int64_t passes = reader.TakeCount(2);
  for (int64_t i = 0; i < passes; ++i) {
    SamplerPass& pass = state.passes.emplace_back();
    pass.num_replicas = reader.Take();
    const int64_t positions = reader.TakeCount(1);
    for (int64_t k = 0; k < positions; ++k) pass.positions.push_back(reader.Take());
  }
  if (!reader.exhausted()) return Damaged(values);
  if (state.passes.empty()) return Damaged(values);
  if (state.rank < -1 || state.rank >= state.passes.back().num_replicas) return Damaged(values);
  return state;
}

absl::StatusOr<SamplerState> MergeSamplerStates(std::span<const SamplerState> states) {
  if (states.empty() || states[0].passes.empty()) {
    return absl::InvalidArgumentError(
        "MergeSamplerStates: no state given; expected one of each replica");
  }
  SamplerState merged = states[0];
  SamplerPass& pass = merged.passes.back();
  if (static_cast<int64_t>(states.size()) != pass.num_replicas) {
    return absl::InvalidArgumentError(
        absl::StrCat("MergeSamplerStates: ", states.size(), " states of an epoch read by ",
                     pass.num_replicas, " replicas; expected one of each replica"));
  }
  pass.positions.assign(states.size(), -1);
  merged.rank = -1;
  for (const SamplerState& state : states) {
    // All but the position has to agree.
    SamplerState rest = state;
    rest.rank = -1;
    if (!rest.passes.empty()) rest.passes.back().positions = pass.positions;
    if (rest != merged || state.passes.back().positions.size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "MergeSamplerStates: the state of rank ", state.rank, " (size=", state.size,
          ", seed=", state.seed, ", epoch=", state.epoch,
          ") is not of the same epoch as that of rank ", states[0].rank, " (size=", states[0].size,
          ", seed=", states[0].seed, ", epoch=", states[0].epoch,
          ") or has been merged before; save all of them at one step"));
    }
    if (state.rank < 0 || state.rank >= pass.num_replicas || pass.positions[state.rank] != -1) {
      return absl::InvalidArgumentError(absl::StrCat("MergeSamplerStates: rank=", state.rank,
                                                     " of a state is out of range or "
                                                     "given twice; expected each of 0..",
                                                     pass.num_replicas - 1, " once"));
    }
    pass.positions[state.rank] = state.passes.back().positions[0];
  }
  return merged;
}

}  // namespace medfusion
