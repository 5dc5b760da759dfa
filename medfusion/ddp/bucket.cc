#include "medfusion/ddp/bucket.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace medfusion {
namespace {

// Strides as autograd gives them to gradients (LibTorch's "gradient layout contract"), so that a
// stolen gradient and its slot match.
std::vector<int64_t> GradientStrides(const at::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) return parameter.strides().vec();
  std::vector<int64_t> strides(parameter.dim());
  int64_t step = 1;
  for (int64_t d = parameter.dim() - 1; d >= 0; --d) {
    strides[d] = step;
    step *= parameter.size(d);
  }
  return strides;
}

}  // namespace

Bucket::Bucket(ProcessGroup& group, std::vector<int> members, std::span<const BucketItem> items,
               std::span<const at::Tensor> parameters)
    : members_(std::move(members)) {
  c10::AutoGradMode no_grad(false);
  const BucketLayout layout = LayOutBucket(items, members_);
  const at::Tensor& first = parameters[members_.front()];
  wire_ = group.Allocate(layout.numel + 1, first.scalar_type());
  gradients_ = wire_.narrow(0, 0, layout.numel);
  status_ = wire_.narrow(0, layout.numel, 1);
  for (size_t k = 0; k < members_.size(); ++k) {
    const at::Tensor& parameter = parameters[members_[k]];
    // set_ on an empty tensor, unlike narrow or as_strided, makes no view: Note [Gradients live in
    // buckets].
    at::Tensor slot = at::empty({0}, wire_.options());
    slot.set_(wire_.storage(), wire_.storage_offset() + layout.offsets[k], parameter.sizes(),
              GradientStrides(parameter));
    slots_.push_back(std::move(slot));
  }
}

bool Bucket::low_precision() const {
  return wire_.scalar_type() == at::kHalf || wire_.scalar_type() == at::kBFloat16;
}

void Bucket::SetTrouble(bool trouble) {
  c10::AutoGradMode no_grad(false);
  status_.fill_(trouble ? 1 : 0);
}

bool SameMemory(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) ||
         (a.layout() == at::kStrided && a.is_alias_of(b) &&
          a.storage_offset() == b.storage_offset() && a.scalar_type() == b.scalar_type() &&
          a.sizes() == b.sizes() && a.strides() == b.strides());
}

}  // namespace medfusion
