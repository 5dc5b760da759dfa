#include "medfusion/fsdp/flat_gradient.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <utility>

namespace medfusion {

void FlatGradient::TakeFull() {
  const int64_t numel = parameter_.layout().padded_numel();
  const int64_t bytes = numel * static_cast<int64_t>(c10::elementSize(dtype_));
  FullBuffers::Buffer buffer = buffers_.Take(bytes);
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(buffer.data),
                             /*allocator=*/nullptr, /*resizable=*/false);
  full_ = at::empty({0}, at::TensorOptions(dtype_).device(parameter_.device()));
  full_.set_(storage, 0, {numel}, {1});
}

void FlatGradient::ReturnFull() {
  if (!full_.defined()) return;
  const auto bytes = static_cast<int64_t>(full_.storage().nbytes());
  buffers_.Return({full_.storage().set_data_ptr(c10::DataPtr(nullptr, full_.device())), bytes});
  full_.reset();
}

void FlatGradient::Add(int member, const at::Tensor& gradient) {
  c10::AutoGradMode no_grad(false);
  if (!full_.defined()) TakeFull();
  const FlatParameter::Member& at = parameter_.members()[member];
  at::Tensor place = full_.as_strided(at.sizes, at.strides, parameter_.layout().offsets[member]);
  if (filled_[member]) {
    place.add_(gradient);
  } else {
    place.copy_(gradient);
    filled_[member] = true;
  }
}

void FlatGradient::ZeroWhatIsNotFilled() {
  const ShardLayout& layout = parameter_.layout();
  if (!full_.defined()) TakeFull();
  for (size_t i = 0; i < filled_.size(); ++i) {
    if (!filled_[i]) full_.narrow(0, layout.offsets[i], layout.numels[i]).zero_();
  }
  full_.narrow(0, layout.numel, layout.padding()).zero_();
}

void FlatGradient::StartReduce() {
  c10::AutoGradMode no_grad(false);
  ZeroWhatIsNotFilled();
  std::fill(filled_.begin(), filled_.end(), false);
  if (parameter_.layout().shards > 1) {
    reduced_ = at::empty({parameter_.layout().shard_numel}, full_.options());
    work_ = groups_.shard->ReduceScatter(reduced_, full_, ReduceOp::kAverage);
  } else {
    reduced_ = full_;
    if (groups_.replicate) work_ = groups_.replicate->AllReduce(reduced_, ReduceOp::kAverage);
  }
}

bool FlatGradient::EveryGradientExists() const {
  for (size_t i = 0; i < filled_.size(); ++i) {
    if (parameter_.members()[i].trained && !parameter_.slices()[i].grad().defined()) return false;
  }
  return true;
}

void FlatGradient::EndTransfer() {
  if (!reduced_.defined()) return;
  c10::AutoGradMode no_grad(false);
  if (work_) work_->Wait();
  work_ = nullptr;
  if (parameter_.layout().shards == 1) return;
  ReturnFull();
  // Where gradients are there already, a later backward adds to them at once, so that they are not
  // in memory twice. A parameter that nobody used gets a zero added.
  if (groups_.replicate == nullptr && EveryGradientExists()) {
    Deliver(std::vector<char>(filled_.size(), true));
  }
}

void FlatGradient::Poll() {
  if (work_ && work_->IsCompleted()) EndTransfer();
}

void FlatGradient::FinishReduce(const std::vector<char>& used) {
  if (!reduced_.defined()) return;
  c10::AutoGradMode no_grad(false);
  EndTransfer();
  if (!reduced_.defined()) return;
  if (parameter_.layout().shards > 1 && groups_.replicate) {
    groups_.replicate->AllReduce(reduced_, ReduceOp::kAverage)->Wait();
  }
  Deliver(used);
}

void FlatGradient::Deliver(const std::vector<char>& used) {
  // Without shards the reduced gradient is the full buffer itself, which then belongs to the
  // gradients.
  const at::Tensor reduced = reduced_.to(parameter_.shard().options());
  if (parameter_.layout().shards == 1 && reduced.is_same(reduced_)) {
    buffers_.Forget(static_cast<int64_t>(full_.storage().nbytes()));
    full_.reset();
  }
  ReturnFull();
  reduced_.reset();
  for (int i = 0; i < static_cast<int>(used.size()); ++i) {
    if (!used[i] || !parameter_.members()[i].trained) continue;
    at::Tensor& gradient = parameter_.slices()[i].mutable_grad();
    const at::Tensor part = parameter_.SliceOf(reduced, i);
    if (gradient.defined()) {
      gradient.add_(part);
    } else {
      gradient = part;
    }
  }
}

void FlatGradient::Drop() noexcept {
  std::fill(filled_.begin(), filled_.end(), false);
  if (full_.defined()) {
    if (work_) {
      // The transfer holds its memory until it is over.
      buffers_.Forget(static_cast<int64_t>(full_.storage().nbytes()));
      full_.reset();
    } else {
      ReturnFull();
    }
  }
  reduced_.reset();
  work_ = nullptr;
}

}  // namespace medfusion
