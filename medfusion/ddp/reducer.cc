#include "medfusion/ddp/reducer.h"

#include <ATen/ops/cat.h>
#include <absl/strings/str_cat.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "medfusion/ddp/gradient_hook.h"

namespace medfusion {
namespace {

std::vector<at::Tensor> TensorsOf(const std::vector<ReducerParameter>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const ReducerParameter& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

}  // namespace

Reducer::Reducer(std::shared_ptr<ProcessGroup> group, std::vector<ReducerParameter> parameters,
                 const ReducerOptions& options)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      options_(options),
      buckets_(group_, TensorsOf(parameters_), options_.limits),
      tensors_(buckets_.parameters()),
      divisor_(group_->size()) {
  for (const at::Tensor& tensor : tensors_) {
    index_.emplace(tensor.unsafeGetTensorImpl(), static_cast<int>(index_.size()));
  }
  const size_t size = tensors_.size();
  reachable_.assign(size, 0);
  used_.assign(size, 0);
  kept_.resize(size);
  if (HasReport()) {
    report_ = group_->Allocate(options_.find_unused_parameters ? size + 1 : 1, at::kInt);
  }
  ResetRound();
  for (size_t i = 0; i < size; ++i) {
    try {
      SetGradientHook(tensors_[i], [this, i] { OnGradient(static_cast<int>(i)); });
    } catch (...) {
      while (i-- > 0) ClearGradientHook(tensors_[i]);
      throw;
    }
  }
}

Reducer::~Reducer() {
  for (const at::Tensor& tensor : tensors_) ClearGradientHook(tensor);
}

void Reducer::MarkOutputs(std::span<const at::Tensor> outputs) {
  if (!options_.find_unused_parameters) return;
  MarkReachable(outputs, index_, reachable_);
  outputs_known_ = true;
}

// See Note [Late status].
void Reducer::BeginForward() {
  const std::lock_guard<std::mutex> lock(mutex_);
  c10::AutoGradMode no_grad(false);
  if (late_status_.Take()) AgreeOnTrouble(*group_, RoundOutcome::kComplete, "");
  if (!active_) return;
  RoundOutcome outcome = RoundOutcome::kComplete;
  if (next_bucket_ < buckets_.size()) {
    outcome = end_queued_ ? RoundOutcome::kAborted : RoundOutcome::kMissing;
    LaunchReadyBuckets(/*trouble=*/true);
  }
  Finish(outcome);
}

void Reducer::OnGradient(int index) {
  const std::lock_guard<std::mutex> lock(mutex_);
  used_[index] = 1;
  if (suspended_ > 0) {
    if (!active_) return;
    throw GradientError(absl::StrCat(
        "'", parameters_[index].name,
        "' got a gradient under no_sync while an earlier backward outside of it still lacks "
        "gradients of ",
        MissingGradients(), "; complete that one first"));
  }
  if (!end_queued_) {
    end_queued_ = true;
    AtEndOfBackward([this] { OnBackwardEnd(); });
  }
  if (!active_) {
    BeginRound();
    if (outputs_known_) {
      for (int i = 0; i < static_cast<int>(ready_.size()); ++i) {
        if (reachable_[i] == 0 && i != index) MarkUnused(i);
      }
    }
  }
  CheckGradient(index);
  c10::AutoGradMode no_grad(false);
  arrival_.push_back(index);
  MarkReady(index, /*contributes=*/true);
  LaunchReadyBuckets(/*trouble=*/false);
}

void Reducer::CheckGradient(int index) const {
  const std::string& name = parameters_[index].name;
  if (ready_[index] != 0) {
    throw GradientError(absl::StrCat(
        "'", name,
        "' got a gradient twice before all other parameters had one, and its average may be under "
        "way. Call backward once on the sum of the losses, or all but the last backward under "
        "no_sync. With find_unused_parameters: the parameter was reached by a tensor that forward "
        "did not return"));
  }
  if (c10::GradMode::is_enabled()) {
    throw GradientError(
        absl::StrCat("backward(create_graph=true) reached '", name,
                     "': an averaged gradient has no graph. Take gradients for a penalty by "
                     "torch::autograd::grad, or call this backward under no_sync"));
  }
  if (tensors_[index].grad().layout() != at::kStrided) {
    throw GradientError(absl::StrCat("the gradient of '", name,
                                     "' is sparse; make the module with dense gradients "
                                     "(EmbeddingOptions::sparse(false))"));
  }
}

void Reducer::OnBackwardEnd() {
  const std::lock_guard<std::mutex> lock(mutex_);
  end_queued_ = false;
  if (!active_) return;
  c10::AutoGradMode no_grad(false);
  if (options_.find_unused_parameters) {
    for (int i = 0; i < static_cast<int>(ready_.size()); ++i) {
      if (ready_[i] == 0) MarkUnused(i);
    }
    LaunchReadyBuckets(/*trouble=*/false);
  }
  // Otherwise a second backward, of another loss, may bring the rest.
  if (next_bucket_ == buckets_.size()) Finish(RoundOutcome::kComplete);
}

void Reducer::BeginRound() {
  ResetRound();
  active_ = true;
  end_queued_ = true;
}

void Reducer::ResetRound() {
  active_ = false;
  end_queued_ = false;
  ready_.assign(tensors_.size(), 0);
  keep_undefined_.assign(tensors_.size(), 0);
  std::fill(kept_.begin(), kept_.end(), at::Tensor());
  arrival_.clear();
  pending_.clear();
  for (int b = 0; b < buckets_.size(); ++b) {
    pending_.push_back(static_cast<int>(buckets_[b].members().size()));
  }
  next_bucket_ = 0;
  works_.clear();
  report_work_ = nullptr;
}

void Reducer::MarkReady(int index, bool contributes) {
  if (contributes) {
    buckets_.Adopt(index);
  } else {
    buckets_.SlotOf(index).zero_();
  }
  ready_[index] = 1;
  --pending_[buckets_.BucketOf(index)];
}

void Reducer::MarkUnused(int index) {
  c10::AutoGradMode no_grad(false);
  const bool has_gradient = tensors_[index].grad().defined();
  // The average of n equal numbers can differ from them in the last bit.
  if (has_gradient && options_.find_unused_parameters) {
    kept_[index] = tensors_[index].grad().clone();
  }
  keep_undefined_[index] = has_gradient ? 0 : 1;
  MarkReady(index, has_gradient);
}

void Reducer::Shadow(bool keep_gradients) {
  const std::lock_guard<std::mutex> lock(mutex_);
  c10::AutoGradMode no_grad(false);
  BeginRound();
  end_queued_ = false;
  for (int i = 0; i < static_cast<int>(tensors_.size()); ++i) {
    if (keep_gradients || used_[i] != 0) {
      MarkUnused(i);
    } else {
      MarkReady(i, /*contributes=*/false);
    }
  }
  LaunchReadyBuckets(/*trouble=*/false);
  Finish(RoundOutcome::kComplete);
}

// Note [Order of buckets]
// Collectives pair up by their order, so bucket i+1 is never sent before bucket i, whatever becomes
// ready first on this rank.
void Reducer::LaunchReadyBuckets(bool trouble) {
  const int count = buckets_.size();
  while (next_bucket_ < count && (trouble || pending_[next_bucket_] == 0)) {
    Launch(next_bucket_++, trouble);
  }
  if (next_bucket_ == count && HasReport() && report_work_ == nullptr) LaunchReport(trouble);
}

void Reducer::Launch(int number, bool trouble) {
  Bucket& bucket = buckets_[number];
  if (options_.comm_hook) {
    GradBucket view{number,  number + 1 == buckets_.size(), bucket.gradients(), bucket.slots(), {},
                    divisor_};
    for (int member : bucket.members()) view.names.push_back(parameters_[member].name);
    works_.push_back(options_.comm_hook(*group_, view));
    return;
  }
  bucket.SetTrouble(trouble);
  if (bucket.low_precision()) bucket.gradients().div_(divisor_);
  works_.push_back(group_->AllReduce(bucket.wire()));
}

void Reducer::LaunchReport(bool trouble) {
  at::Tensor local = report_.device().is_cpu() ? report_ : report_.cpu();
  int32_t* entries = local.data_ptr<int32_t>();
  entries[0] = trouble ? 1 : 0;
  if (options_.find_unused_parameters) std::copy(used_.begin(), used_.end(), entries + 1);
  if (!report_.device().is_cpu()) report_.copy_(local);
  report_work_ = group_->AllReduce(report_);
}

void Reducer::Finish(RoundOutcome outcome) {
  const std::string missing = outcome == RoundOutcome::kMissing ? MissingGradients() : "";
  const std::vector<int> arrival = arrival_;
  try {
    WaitForBuckets();
    if (HasReport()) WaitForReport();
  } catch (...) {
    ResetRound();
    throw;
  }
  for (size_t i = 0; i < tensors_.size() && !options_.find_unused_parameters; ++i) {
    if (keep_undefined_[i] != 0) buckets_.PointGradAtSlot(static_cast<int>(i));
  }
  ResetRound();
  std::fill(used_.begin(), used_.end(), 0);
  std::fill(reachable_.begin(), reachable_.end(), 0);
  outputs_known_ = false;
  if (TroubleAnywhere(outcome)) {
    AgreeOnTrouble(*group_, outcome, missing);
  } else if (!rebuilt_ && !options_.find_unused_parameters) {
    rebuilt_ = true;
    RebuildInOrderOfArrival(arrival);
  }
}

void Reducer::WaitForBuckets() {
  for (size_t b = 0; b < works_.size(); ++b) {
    if (works_[b] != nullptr) works_[b]->Wait();
    const Bucket& bucket = buckets_[static_cast<int>(b)];
    if (options_.comm_hook || bucket.low_precision() || divisor_ == 1) continue;
    bucket.gradients().div_(divisor_);
  }
}

void Reducer::WaitForReport() {
  report_work_->Wait();
  if (!options_.find_unused_parameters) return;
  const at::Tensor sums = report_.cpu();
  const int32_t* users = sums.data_ptr<int32_t>() + 1;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const at::Tensor& slot = buckets_.SlotOf(static_cast<int>(i));
    if (users[i] != 0 && keep_undefined_[i] != 0) buckets_.PointGradAtSlot(static_cast<int>(i));
    if (users[i] == 0 && kept_[i].defined()) slot.copy_(kept_[i]);
  }
}

bool Reducer::TroubleAnywhere(RoundOutcome outcome) {
  std::vector<at::Tensor> numbers;
  if (HasReport()) {
    numbers.push_back(report_.narrow(0, 0, 1));
  } else {
    for (int b = 0; b < buckets_.size(); ++b) numbers.push_back(buckets_[b].status());
  }
  if (outcome != RoundOutcome::kComplete) return true;
  // The first round ends with a decision that is not to be put off.
  if (numbers.front().device().is_cpu() || !rebuilt_) {
    return std::any_of(numbers.begin(), numbers.end(),
                       [](const at::Tensor& number) { return number.item<float>() != 0; });
  }
  for (at::Tensor& number : numbers) number = number.to(at::kFloat);
  late_status_.Record(at::cat(numbers));
  return false;
}

std::string Reducer::MissingGradients() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (ready_[i] == 0) names.push_back(parameters_[i].name);
  }
  return QuoteNames(names);
}

void Reducer::RebuildInOrderOfArrival(std::vector<int> order) {
  std::vector<char> listed(tensors_.size(), 0);
  for (int i : order) listed[i] = 1;
  for (int i : buckets_.order()) {
    if (listed[i] == 0) order.push_back(i);  // nothing arrived on a rank that shadows in a Join
  }
  at::Tensor agreed = group_->Allocate(static_cast<int64_t>(order.size()), at::kInt);
  at::Tensor local = agreed.cpu();
  std::copy(order.begin(), order.end(), local.data_ptr<int32_t>());
  agreed.copy_(local);
  group_->Broadcast(agreed, 0)->Wait();
  local = agreed.cpu();
  order.assign(local.data_ptr<int32_t>(), local.data_ptr<int32_t>() + order.size());
  if (buckets_.Rebuild(order)) ResetRound();
}

}  // namespace medfusion
