#include "medfusion/fsdp/gradient_reducer.h"

#include <ATen/ops/zeros.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "medfusion/fsdp/autograd_hooks.h"

namespace medfusion {

namespace {

// Low-precision gradients are added up in float32 when their shard has it, unless the user says
// otherwise.
at::ScalarType GradientDtype(const FlatParameter& parameter,
                             const GradientReducerOptions& options) {
  const at::ScalarType dtype = parameter.compute_dtype();
  if (options.dtype && c10::isFloatingType(dtype)) return *options.dtype;
  const bool low = dtype == at::kHalf || dtype == at::kBFloat16;
  return low && parameter.shard().scalar_type() != dtype ? at::kFloat : dtype;
}

}  // namespace

GradientReducer::GradientReducer(std::vector<FlatParameter*> units, ReduceGroups groups,
                                 const GradientReducerOptions& options, ProcessGroup& world,
                                 Pager& pager, FullBuffers& buffers)
    : groups_(std::move(groups)), options_(options), world_(world), pager_(pager) {
  for (int u = 0; u < static_cast<int>(units.size()); ++u) {
    Unit unit;
    unit.parameter = units[u];
    unit.gradient = std::make_unique<FlatGradient>(*units[u], groups_, buffers,
                                                   GradientDtype(*units[u], options_));
    unit.first_flag = flags_;
    flags_ += static_cast<int>(units[u]->members().size());
    for (int m = 0; m < static_cast<int>(units[u]->members().size()); ++m) {
      const FlatParameter::Member& member = units[u]->members()[m];
      if (!member.trained) continue;
      ++unit.trained;
      HookGradient(member.tensor, [this, u, m] { OnGradient(u, m); });
    }
    units_.push_back(std::move(unit));
  }
  for (int u = static_cast<int>(units_.size()) - 1; u >= 0; --u) {
    if (units_[u].trained > 0) order_.push_back(u);
  }
}

GradientReducer::~GradientReducer() {
  for (const Unit& unit : units_) {
    for (const FlatParameter::Member& member : unit.parameter->members()) {
      if (member.trained) UnhookGradient(member.tensor);
    }
  }
}

void GradientReducer::CheckGradient(const FlatParameter::Member& member) const {
  if (c10::GradMode::is_enabled()) {
    throw std::logic_error(
        "backward with create_graph=true through an FSDPWrapper: sharded gradients keep no graph");
  }
  if (member.tensor.grad().layout() != at::kStrided) {
    throw std::logic_error(absl::StrCat("the gradient of parameter '", member.name,
                                        "' is sparse, and shards are dense; make the embedding "
                                        "without sparse(true)"));
  }
  if (pager_.full()) {
    throw std::logic_error("backward inside a FullParameters scope; close the scope first");
  }
}

void GradientReducer::OnGradient(int index, int m) {
  Unit& unit = units_[index];
  const FlatParameter::Member& member = unit.parameter->members()[m];
  if (backward_ != CurrentBackward()) {
    backward_ = CurrentBackward();
    WhenBackwardEnds([this] { Finish(); }, [this] { Abandon(); });
  }
  CheckGradient(member);
  if (!unit.gradient->in_memory()) MakeRoom();
  unit.gradient->Add(m, member.tensor.grad());
  member.tensor.mutable_grad().reset();
  if (++unit.arrived < unit.trained) return;
  arrival_.push_back(index);
  pager_.Park(unit.parameter);
  if (suspended_ == 0) SendCompleteUnits();
}

// Before another full gradient comes into memory.
void GradientReducer::MakeRoom() {
  for (int index : in_flight_) units_[index].gradient->Poll();
  std::erase_if(in_flight_, [this](int index) { return !units_[index].gradient->in_memory(); });
  while (static_cast<int>(in_flight_.size()) > options_.max_in_flight) {
    units_[in_flight_.front()].gradient->EndTransfer();
    in_flight_.pop_front();
  }
}

void GradientReducer::SendCompleteUnits() {
  while (next_ < order_.size()) {
    const Unit& unit = units_[order_[next_]];
    if (unit.arrived < unit.trained) return;
    Send(order_[next_++]);
  }
}

void GradientReducer::Send(int index) {
  if (!units_[index].gradient->in_memory()) MakeRoom();
  units_[index].gradient->StartReduce();
  in_flight_.push_back(index);
  units_[index].sent = true;
}

void GradientReducer::Finish() {
  if (backward_ == -1) return;
  if (suspended_ > 0) {
    ResetBackward();
    return;
  }
  const std::vector<char> used = ExchangeReport();
  const auto used_in = [&](const Unit& unit) {
    const auto first = used.begin() + unit.first_flag;
    return std::vector<char>(first, first + static_cast<int>(unit.parameter->members().size()));
  };
  for (; next_ < order_.size(); ++next_) {
    const std::vector<char> members = used_in(units_[order_[next_]]);
    if (std::count(members.begin(), members.end(), 1) > 0) Send(order_[next_]);
  }
  for (int index : order_) {
    Unit& unit = units_[index];
    if (unit.sent) unit.gradient->FinishReduce(used_in(unit));
  }
  if (!learned_) LearnOrder();
  ResetBackward();
}

// The maximum over the ranks of [per member: got a gradient], and of the pager's report.
std::vector<char> GradientReducer::ExchangeReport() {
  c10::AutoGradMode no_grad(false);
  at::Tensor report = at::zeros({flags_ + 3}, at::kLong);
  int64_t* values = report.mutable_data_ptr<int64_t>();
  for (const Unit& unit : units_) {
    for (int m = 0; m < static_cast<int>(unit.parameter->members().size()); ++m) {
      // What was sent is no longer in the buffer; it was complete.
      const bool sent = unit.sent && unit.parameter->members()[m].trained;
      values[unit.first_flag + m] = sent || unit.gradient->filled(m) ? 1 : 0;
    }
  }
  const Pager::Report pages = pager_.TakeReport();
  values[flags_] = pages.order_hash;
  values[flags_ + 1] = pages.minus_order_hash;
  values[flags_ + 2] = pages.deviated;
  at::Tensor on_device = report.to(world_.device_type());
  world_.AllReduce(on_device, ReduceOp::kMax)->Wait();
  report = on_device.cpu();
  values = report.mutable_data_ptr<int64_t>();
  pager_.EndBackward({values[flags_], values[flags_ + 1], values[flags_ + 2]});
  return {values, values + flags_};
}

void GradientReducer::LearnOrder() {
  const std::vector<std::string> orders = world_.AllGatherBytes(absl::StrJoin(arrival_, " "));
  std::vector<int> order;
  for (const auto& text : absl::StrSplit(orders[0], ' ', absl::SkipEmpty())) {
    const int unit = std::stoi(std::string(text));
    if (std::find(order.begin(), order.end(), unit) == order.end()) order.push_back(unit);
  }
  for (int unit : order_) {
    if (std::find(order.begin(), order.end(), unit) == order.end()) order.push_back(unit);
  }
  order_ = std::move(order);
  learned_ = true;
}

void GradientReducer::ResetBackward() {
  for (Unit& unit : units_) {
    unit.arrived = 0;
    unit.sent = false;
  }
  arrival_.clear();
  in_flight_.clear();
  next_ = 0;
  backward_ = -1;
  pager_.DropPass();
}

void GradientReducer::Abandon() noexcept {
  if (backward_ != -1) Forget();
}

void GradientReducer::Forget() noexcept {
  for (Unit& unit : units_) {
    unit.gradient->Drop();
    for (const FlatParameter::Member& member : unit.parameter->members()) {
      if (member.trained) member.tensor.mutable_grad().reset();
    }
  }
  ResetBackward();
}

}  // namespace medfusion
