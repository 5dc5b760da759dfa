#include "medfusion/sampler/distributed_sampler.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "medfusion/base/status.h"
#include "medfusion/sampler/permutation.h"

namespace medfusion {
namespace {

int64_t Checked(int64_t size, int64_t num_replicas, int64_t rank, const SamplerOptions& options) {
  const auto refuse = [](const std::string& text) {
    throw std::invalid_argument("DistributedSampler: " + text);
  };
  // Keeps every sum and product of sizes and replicas within 64 bits.
  constexpr int64_t kMost = int64_t{1} << 60;
  if (size < 0 || size > kMost) {
    refuse(absl::StrCat("size=", size, " (argument); expected the dataset's number of samples, 0..",
                        kMost));
  }
  if (num_replicas < 1 || num_replicas > std::numeric_limits<int32_t>::max()) {
    refuse(absl::StrCat("num_replicas=", num_replicas,
                        " (argument); expected the number of ranks, 1 or more"));
  }
  if (rank < 0 || rank >= num_replicas) {
    refuse(absl::StrCat("rank=", rank, " is out of range for num_replicas=", num_replicas,
                        " (arguments); expected 0..", num_replicas - 1));
  }
  if (options.drop_last && options.mode == SamplerMode::kExactlyOnce) {
    refuse(
        "drop_last=true with mode=kExactlyOnce (options), which leaves no sample out; choose one "
        "of the two");
  }
  return size;
}

const char* Name(SamplerMode mode) {
  return mode == SamplerMode::kExactlyOnce ? "kExactlyOnce" : "kPadded";
}

absl::Status Differs(const char* what, const std::string& saved, const std::string& here,
                     const char* remedy) {
  return absl::InvalidArgumentError(absl::StrCat("DistributedSampler: the saved state has ", what,
                                                 "=", saved, ", this sampler ", what, "=", here,
                                                 "; ", remedy));
}

}  // namespace

DistributedSampler::DistributedSampler(int64_t size, int64_t num_replicas, int64_t rank,
                                       SamplerOptions options)
    : dataset_size_(Checked(size, num_replicas, rank, options)),
      num_replicas_(num_replicas),
      rank_(rank),
      options_(options),
      plan_(size, num_replicas, options.mode, options.drop_last) {}

void DistributedSampler::SetEpoch(int64_t epoch) {
  if (restored_ && epoch == epoch_) return;
  if (epoch != epoch_) ordered_ = false;
  epoch_ = epoch;
  BeginEpoch();
}

void DistributedSampler::Reset() {
  if (!restored_) BeginEpoch();
}

void DistributedSampler::BeginEpoch() {
  if (!past_.empty()) {
    past_.clear();
    plan_ = EpochPlan(dataset_size_, num_replicas_, options_.mode, options_.drop_last);
    ordered_ = false;
  }
  start_ = position_ = 0;
  restored_ = false;
}

std::optional<std::vector<size_t>> DistributedSampler::Next(size_t batch_size) {
  if (batch_size == 0) {
    throw std::invalid_argument(
        "DistributedSampler: batch_size=0 (argument of Next); expected 1 or more");
  }
  restored_ = false;
  const int64_t left = size() - position_;
  if (left == 0) return std::nullopt;
  if (options_.shuffle && !ordered_) MakeOrder();
  const size_t count = std::min(batch_size, static_cast<size_t>(left));
  std::vector<size_t> indices(count);
  for (size_t& index : indices) index = IndexAt(position_++);
  return indices;
}

size_t DistributedSampler::IndexAt(int64_t k) const {
  if (!options_.shuffle) return plan_.place(rank_ + k * num_replicas_);
  return narrow_.empty() ? wide_[k] : narrow_[k];
}

void DistributedSampler::MakeOrder() {
  // What the last epoch held goes before this one's order comes.
  narrow_ = {};
  wide_ = {};
  if (dataset_size_ <= int64_t{1} << 32) {
    MakeOrder(&narrow_);
  } else {
    MakeOrder(&wide_);
  }
  ordered_ = true;
}

template <typename Index>
void DistributedSampler::MakeOrder(std::vector<Index>* own) {
  const uint64_t seed = static_cast<uint64_t>(options_.seed) + static_cast<uint64_t>(epoch_);
  const std::vector<Index> order = TorchPermutation<Index>(dataset_size_, seed);
  own->resize(size());
  int64_t turn = rank_;
  for (Index& index : *own) {
    index = order[plan_.place(turn)];
    turn += num_replicas_;
  }
}

SamplerState DistributedSampler::State() const { return StateAfter(position_ - start_); }

SamplerState DistributedSampler::StateAfter(int64_t samples) const {
  if (samples < 0 || samples > position_ - start_) {
    throw std::invalid_argument(absl::StrCat("DistributedSampler: samples=", samples,
                                             " (argument of StateAfter); expected 0..",
                                             position_ - start_, ", what Next has given"));
  }
  SamplerState state = {.size = dataset_size_,
                        .seed = options_.seed,
                        .epoch = epoch_,
                        .shuffle = options_.shuffle,
                        .drop_last = options_.drop_last,
                        .mode = options_.mode,
                        .rank = rank_,
                        .passes = past_};
  state.passes.push_back({.num_replicas = num_replicas_, .positions = {start_ + samples}});
  return state;
}

absl::Status DistributedSampler::Restore(const SamplerState& state) {
  if (state.size != dataset_size_) {
    return Differs("size", absl::StrCat(state.size), absl::StrCat(dataset_size_),
                   "an epoch can only go on with the dataset it began with: use that one, or "
                   "begin a new epoch without the state");
  }
  constexpr char kOptions[] = "build the sampler with the options of the run that saved it";
  if (state.shuffle != options_.shuffle) {
    return Differs("shuffle", absl::StrCat(state.shuffle), absl::StrCat(options_.shuffle),
                   kOptions);
  }
  if (state.drop_last != options_.drop_last) {
    return Differs("drop_last", absl::StrCat(state.drop_last), absl::StrCat(options_.drop_last),
                   kOptions);
  }
  if (state.mode != options_.mode) {
    return Differs("mode", Name(state.mode), Name(options_.mode), kOptions);
  }
  MEDFUSION_ASSIGN_OR_RETURN(EpochPlan plan, EpochPlan::Of(state));

  const SamplerPass& last = state.passes.back();
  std::vector<SamplerPass> past(state.passes.begin(), state.passes.end() - 1);
  int64_t position = 0;
  if (plan.num_replicas() == num_replicas_) {
    position = plan.PositionOf(last.positions, rank_);
  } else {
    plan = plan.Rest(last.positions, num_replicas_);
    past.push_back(last);
  }
  options_.seed = state.seed;
  epoch_ = state.epoch;
  plan_ = std::move(plan);
  past_ = std::move(past);
  start_ = position_ = position;
  restored_ = true;
  ordered_ = false;
  return absl::OkStatus();
}

}  // namespace medfusion
