#include "medfusion/fsdp/pager.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <limits>
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
  UnitList needed;
  for (const PageAccess& access : accesses) {
    if (std::find(needed.begin(), needed.end(), access.flat) == needed.end()) {
      needed.push_back(access.flat);
    }
  }
  if (needed.size() == 1 && needed.front() == current_) return;
  for (FlatParameter* unit : needed) MakeReadable(unit, needed);
  StartAhead(InBackward() ? options_.backward_prefetch : options_.forward_prefetch, needed);
  current_ = needed.back();
}

void Pager::RequirePermission(std::string_view name, std::span<const PageAccess> accesses) const {
  if (full_) {
    for (const PageAccess& access : accesses) {
      if (access.writes && !writable_) {
        throw std::logic_error(absl::StrCat(std::string(name), " would write to ",
                                            Parameter(access),
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
        std::string(name), " uses ", Parameter(first),
        ", which is sharded and parked: outside of the wrapper's forward and of backward its "
        "values are not on this rank. Open a FullParameters scope on all ranks to use it"));
  }
  if (in_forward() && !backward && std::this_thread::get_id() != forward_thread_) {
    throw std::logic_error(absl::StrCat(std::string(name), " uses ", Parameter(first),
                                        " on another thread than the one that runs forward; ranks "
                                        "could not agree on the order of communication"));
  }
  for (const PageAccess& access : accesses) {
    if (access.writes) {
      throw std::logic_error(absl::StrCat(
          std::string(name), " would write to ", Parameter(access),
          " during forward or backward, and paging it out would lose that. Change parameters "
          "through the optimizer, or inside a FullParameters scope"));
    }
  }
}

void Pager::MakeReadable(FlatParameter* unit, const UnitList& needed) {
  schedule().Touch(IndexOf(unit), unit->in_memory());
  if (!unit->in_memory()) {
    while (in_memory_.size() >= Limit()) {
      FlatParameter* const victim = Victim(needed);
      if (victim == nullptr) break;
      Park(victim);
    }
    if (!schedule().learned()) CompareWithOtherRanks(IndexOf(unit));
    Start(unit);
  }
  const auto at = std::find(in_memory_.begin(), in_memory_.end(), unit);
  try {
    unit->FinishPageIn();
  } catch (const CollectiveError& error) {
    in_memory_.erase(at);
    if (!schedule().deviated()) throw;
    throw CollectiveError(absl::StrCat(
        error.what(),
        ". Before, this rank had left the order of units of earlier steps, with unit '",
        units_[schedule().first_deviation()]->unit(),
        "'; every rank must run the same modules in the same order"));
  } catch (...) {
    in_memory_.erase(at);
    throw;
  }
  std::rotate(at, at + 1, in_memory_.end());
}

void Pager::StartAhead(int count, const UnitList& needed) {
  if (count == 0 || !schedule().learned()) return;
  UnitList kept = needed;
  for (int index : schedule().Upcoming(count)) {
    FlatParameter* const unit = units_[index];
    if (!unit->in_memory()) {
      if (in_memory_.size() >= Limit()) {
        FlatParameter* const victim = Victim(kept);
        if (victim == nullptr || schedule().NextUse(IndexOf(victim)) <= schedule().NextUse(index)) {
          return;
        }
        Park(victim);
      }
      Start(unit);
    }
    kept.push_back(unit);
  }
}

void Pager::Start(FlatParameter* unit) {
  unit->StartPageIn();
  in_memory_.push_back(unit);
  ++page_ins_;
  // FNV-1a over the units' numbers, kept positive.
  hash_ = static_cast<int64_t>(
      ((static_cast<uint64_t>(hash_) ^ static_cast<uint64_t>(IndexOf(unit) + 1)) *
       1099511628211ULL) >>
      1);
}

size_t Pager::Limit() const {
  if (options_.keep_for_backward && kind_ == kTraining) return std::numeric_limits<size_t>::max();
  return static_cast<size_t>(options_.max_resident);
}

// What is needed last, of several the one that was touched longest ago; null when all are kept.
FlatParameter* Pager::Victim(const UnitList& kept) {
  FlatParameter* victim = nullptr;
  int64_t latest = -1;
  for (FlatParameter* unit : in_memory_) {
    if (std::find(kept.begin(), kept.end(), unit) != kept.end()) continue;
    const int64_t next = schedule().NextUse(IndexOf(unit));
    if (next > latest) {
      victim = unit;
      latest = next;
    }
  }
  return victim;
}

Pager::Report Pager::TakeReport() {
  const PageSchedule& training = schedules_[kTraining];
  if (!training.learned()) CompareWithOtherRanks(kBackwardEnds);
  Report report;
  report.order_hash = std::exchange(hash_, 1);
  report.minus_order_hash = -report.order_hash;
  report.deviated = deviated_ || training.deviated() || !training.learned() ? 1 : 0;
  return report;
}

void Pager::CompareOrders(const Report& joint) const {
  if (joint.order_hash == -joint.minus_order_hash) return;
  throw std::logic_error(
      "ranks ran the model's units in different orders in this step, so parameters were mixed up; "
      "its results and gradients are dropped. Every rank must run the same modules in the same "
      "order");
}

void Pager::AgreeOnSchedule(PageSchedule& schedule) {
  const std::vector<int> recorded = schedule.recorded();
  const std::vector<std::string> orders = shard_group_.AllGatherBytes(absl::StrJoin(recorded, " "));
  const bool same = std::all_of(orders.begin(), orders.end(),
                                [&](const std::string& order) { return order == orders[0]; });
  schedule.Learn(same ? recorded : std::vector<int>());
}

std::string Pager::DescribeStep(int64_t step) const {
  if (step == kForwardEnds) return "none, for forward has ended,";
  if (step == kBackwardEnds) return "none, for backward has ended,";
  return absl::StrCat("of unit '", units_[step]->unit(), "'");
}

void Pager::CompareWithOtherRanks(int step) {
  if (shard_group_.size() == 1) return;
  c10::InferenceMode no_inference(false);
  c10::AutoGradMode no_grad(false);
  const auto options = at::TensorOptions(at::kLong).device(shard_group_.device());
  const at::Tensor mine = at::full({1}, step, options);
  at::Tensor all = at::empty({shard_group_.size()}, options);
  shard_group_.AllGather(all, mine)->Wait();
  const at::Tensor indices = all.cpu();
  const int64_t* index = indices.const_data_ptr<int64_t>();
  for (int rank = 1; rank < shard_group_.size(); ++rank) {
    if (index[rank] == index[0]) continue;
    throw std::logic_error(absl::StrCat(
        "ranks run the model's units in different orders: page-in number ", page_ins_ + 1, " is ",
        DescribeStep(index[0]), " on rank 0 and ", DescribeStep(index[rank]), " on rank ", rank,
        " of the shard group. Every rank must run the same modules in the same order"));
  }
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
  if (InBackward()) return;
  ParkAll();
  kind_ = c10::GradMode::is_enabled() ? kTraining : kEvaluation;
  if (kind_ == kEvaluation || !pass_open_) schedule().Start();
  pass_open_ |= kind_ == kTraining;
  page_ins_ = 0;
  try {
    StartAhead(options_.forward_prefetch > 0 ? 1 + options_.forward_prefetch : 0, {});
  } catch (...) {
    FailForward();
    throw;
  }
}

void Pager::EndForward() {
  if (--forward_depth_ > 0 || InBackward()) return;
  if (!schedule().learned()) {
    try {
      CompareWithOtherRanks(kForwardEnds);
    } catch (...) {
      DropPass();
      throw;
    }
  }
  if (kind_ == kTraining) return;
  ParkAll();
  PageSchedule& evaluation = schedules_[kEvaluation];
  kind_ = kTraining;
  if (page_ins_ == 0) return;
  c10::InferenceMode no_inference(false);
  c10::AutoGradMode no_grad(false);
  const int64_t hash = std::exchange(hash_, 1);
  const int64_t deviated = evaluation.deviated() || !evaluation.learned() ? 1 : 0;
  at::Tensor values = at::tensor({hash, -hash, deviated}, at::TensorOptions(at::kLong));
  values = values.to(shard_group_.device());
  shard_group_.AllReduce(values, ReduceOp::kMax)->Wait();
  values = values.cpu();
  const int64_t* joint = values.const_data_ptr<int64_t>();
  if (joint[2] > 0) AgreeOnSchedule(evaluation);
  CompareOrders({joint[0], joint[1], joint[2]});
}

void Pager::FailForward() noexcept {
  if (--forward_depth_ > 0) return;
  if (!InBackward()) DropPass();
}

void Pager::EndBackward(const Report& joint) {
  ParkAll();
  if (joint.deviated > 0) AgreeOnSchedule(schedules_[kTraining]);
  pass_open_ = false;
  deviated_ = false;
  CompareOrders(joint);
}

void Pager::DropPass() noexcept {
  ParkAll();
  // Whoever failed alone has left the others' order.
  deviated_ |= schedules_[kTraining].deviated();
  kind_ = kTraining;
  pass_open_ = false;
}

void Pager::BeginFull(bool writable) {
  if (full_) throw std::logic_error("a FullParameters scope is open already; they do not nest");
  if (in_forward() || InBackward()) {
    throw std::logic_error("a FullParameters scope cannot be opened inside forward or backward");
  }
  ParkAll();
  try {
    for (FlatParameter* unit : units_) unit->StartExactPageIn();
    for (FlatParameter* unit : units_) unit->FinishExactPageIn();
  } catch (...) {
    for (FlatParameter* unit : units_) unit->ExactPageOut(false);
    throw;
  }
  full_ = true;
  writable_ = writable;
}

void Pager::EndFull() {
  for (FlatParameter* unit : units_) unit->ExactPageOut(writable_);
  full_ = false;
}

void Pager::Park(FlatParameter* unit) noexcept {
  in_memory_.erase(std::remove(in_memory_.begin(), in_memory_.end(), unit), in_memory_.end());
  if (unit == current_) current_ = nullptr;
  unit->PageOut();
}

void Pager::ParkAll() noexcept {
  while (!in_memory_.empty()) Park(in_memory_.back());
}

int Pager::IndexOf(const FlatParameter* unit) const {
  return static_cast<int>(std::find(units_.begin(), units_.end(), unit) - units_.begin());
}

}  // namespace medfusion
