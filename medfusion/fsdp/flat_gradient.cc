#include "medfusion/fsdp/flat_gradient.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace medfusion {

void FlatGradient::Add(int member, const at::Tensor& gradient) {
  c10::AutoGradMode no_grad(false);
  if (!full_.defined()) {
    full_ = at::empty({parameter_.layout().padded_numel()}, parameter_.shard().options());
  }
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
  if (!full_.defined()) {
    full_ = at::empty({layout.padded_numel()}, parameter_.shard().options());
  }
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
    work_ = groups_.shard->ReduceScatter(reduced_, full_);
  } else {
    reduced_ = full_;
    if (groups_.replicate) work_ = groups_.replicate->AllReduce(reduced_);
  }
}

void FlatGradient::EndTransfer() {
  c10::AutoGradMode no_grad(false);
  if (work_) work_->Wait();
  work_ = nullptr;
  full_.reset();
}

void FlatGradient::Poll() {
  if (work_ && work_->IsCompleted()) EndTransfer();
}

void FlatGradient::FinishReduce(const std::vector<char>& used) {
  c10::AutoGradMode no_grad(false);
  EndTransfer();
  if (parameter_.layout().shards > 1 && groups_.replicate) {
    groups_.replicate->AllReduce(reduced_)->Wait();
  }
  if (groups_.ranks > 1) reduced_.div_(groups_.ranks);
  for (int i = 0; i < static_cast<int>(used.size()); ++i) {
    if (!used[i]) continue;
    at::Tensor& gradient = parameter_.slices()[i].mutable_grad();
    const at::Tensor reduced = parameter_.SliceOf(reduced_, i);
    if (gradient.defined()) {
      gradient.add_(reduced);
    } else {
      gradient = reduced;
    }
  }
  reduced_.reset();
}

void FlatGradient::Drop() {
  std::fill(filled_.begin(), filled_.end(), false);
  full_.reset();
  reduced_.reset();
  work_ = nullptr;  // holds its tensors itself until the transfer is over
}

}  // namespace medfusion
