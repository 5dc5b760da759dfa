#include "medfusion/fsdp/pager.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <absl/strings/str_cat.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace medfusion {
namespace {

bool InBackward() { return torch::autograd::get_current_graph_task_id() != -1; }

std::string Parameter(const PageAccess& access) {
  return absl::StrCat("parameter '", access.flat->NameAt(access.storage_offset), "' of unit '",
                      access.flat->unit(), "'");
}

}  // namespace

void Pager::BeforeOperator(std::string_view name, std::span<const PageAccess> accesses) {
  RequirePermission(name, accesses);
  if (full_) return;
  // Two passes, so that what one operator needs is never paged out for another of its arguments.
  std::vector<FlatParameter*> needed;
  for (const PageAccess& access : accesses) {
    if (std::find(needed.begin(), needed.end(), access.flat) == needed.end()) {
      needed.push_back(access.flat);
    }
  }
  for (FlatParameter* unit : needed) {
    const auto known = std::find(resident_.begin(), resident_.end(), unit);
    if (known != resident_.end()) std::rotate(known, known + 1, resident_.end());
  }
  size_t in_use = 0;
  for (FlatParameter* unit : needed) in_use += unit->resident() ? 1 : 0;
  for (FlatParameter* unit : needed) {
    if (unit->resident()) continue;
    EvictBeyondLimit(in_use);
    Touch(unit);
    ++in_use;
  }
}

void Pager::RequirePermission(std::string_view name, std::span<const PageAccess> accesses) const {
  const std::string op(name);
  if (full_) {
    for (const PageAccess& access : accesses) {
      if (access.writes && !writable_) {
        throw std::logic_error(absl::StrCat(op, " would write to ", Parameter(access),
                                            " inside a read-only FullParameters scope; open it "
                                            "with writeback"));
      }
    }
    return;
  }
  const PageAccess& first = accesses.front();
  const bool backward = InBackward();
  if (!in_forward() && !backward) {
    throw std::logic_error(absl::StrCat(
        op, " uses ", Parameter(first),
        ", which is sharded and parked: outside of the wrapper's forward and of backward its "
        "values are not on this rank. Open a FullParameters scope on all ranks to use it"));
  }
  if (in_forward() && !backward && std::this_thread::get_id() != forward_thread_) {
    throw std::logic_error(absl::StrCat(op, " uses ", Parameter(first),
                                        " on another thread than the one that runs forward; ranks "
                                        "could not agree on the order of communication"));
  }
  for (const PageAccess& access : accesses) {
    if (access.writes) {
      throw std::logic_error(absl::StrCat(
          op, " would write to ", Parameter(access),
          " during forward or backward, and paging it out would lose that. Change parameters "
          "through the optimizer, or inside a FullParameters scope"));
    }
  }
}

void Pager::Touch(FlatParameter* unit) {
  if (learning_) CompareWithOtherRanks(unit);
  unit->PageIn();
  resident_.push_back(unit);
  ++page_ins_;
  // FNV-1a over the units' numbers, kept positive.
  hash_ = static_cast<int64_t>(
      ((static_cast<uint64_t>(hash_) ^ static_cast<uint64_t>(IndexOf(unit) + 1)) *
       1099511628211ULL) >>
      1);
}

int64_t Pager::TakeOrderHash() { return std::exchange(hash_, 1); }

void Pager::CompareWithOtherRanks(const FlatParameter* unit) {
  c10::InferenceMode no_inference(false);
  c10::AutoGradMode no_grad(false);
  const auto options = at::TensorOptions(at::kLong).device(unit->device());
  const at::Tensor mine = at::full({1}, IndexOf(unit), options);
  at::Tensor all = at::empty({shard_group_.size()}, options);
  shard_group_.AllGather(all, mine)->Wait();
  const at::Tensor indices = all.cpu();
  const int64_t* index = indices.const_data_ptr<int64_t>();
  for (int rank = 1; rank < shard_group_.size(); ++rank) {
    if (index[rank] == index[0]) continue;
    throw std::logic_error(absl::StrCat(
        "ranks run the model's units in different orders: page-in number ", page_ins_ + 1,
        " is of unit '", units_[index[0]]->unit(), "' on rank 0 and of unit '",
        units_[index[rank]]->unit(), "' on rank ", rank,
        " of the shard group. Every rank must run the same modules in the same order"));
  }
}

void Pager::EvictBeyondLimit(size_t in_use) {
  if (options_.keep_for_backward) return;
  // What the operator needs and has is at the end of the list.
  const auto limit = static_cast<size_t>(options_.max_resident);
  while (resident_.size() + 1 > limit && resident_.size() > in_use) Park(resident_.front());
}

void Pager::BeginForward() {
  if (full_) {
    throw std::logic_error("forward inside a FullParameters scope; close the scope first");
  }
  if (in_forward() && std::this_thread::get_id() != forward_thread_) {
    throw std::logic_error(
        "forward is called on a thread while another is inside it; one thread uses an FSDPWrapper");
  }
  if (forward_depth_++ > 0) return;
  forward_thread_ = std::this_thread::get_id();
  if (!InBackward()) ParkAll();
}

void Pager::EndForward(bool keep) {
  if (--forward_depth_ > 0) return;
  if (!keep && !InBackward()) ParkAll();
}

void Pager::BeginFull(bool writable) {
  if (full_) throw std::logic_error("a FullParameters scope is open already; they do not nest");
  if (in_forward() || InBackward()) {
    throw std::logic_error("a FullParameters scope cannot be opened inside forward or backward");
  }
  ParkAll();
  try {
    for (FlatParameter* unit : units_) unit->PageIn();
  } catch (...) {
    for (FlatParameter* unit : units_) unit->PageOut();
    throw;
  }
  full_ = true;
  writable_ = writable;
}

void Pager::EndFull() {
  if (writable_) {
    for (FlatParameter* unit : units_) unit->WriteBack();
  }
  for (FlatParameter* unit : units_) unit->PageOut();
  full_ = false;
}

void Pager::Park(FlatParameter* unit) {
  resident_.erase(std::remove(resident_.begin(), resident_.end(), unit), resident_.end());
  unit->PageOut();
}

void Pager::ParkAll() {
  while (!resident_.empty()) Park(resident_.back());
}

int Pager::IndexOf(const FlatParameter* unit) const {
  return static_cast<int>(std::find(units_.begin(), units_.end(), unit) - units_.begin());
}

}  // namespace medfusion
