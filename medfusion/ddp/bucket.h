// A piece of flat memory that gradients live in and that one collective reduces.
#ifndef MEDFUSION_DDP_BUCKET_H_
#define MEDFUSION_DDP_BUCKET_H_

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "medfusion/ddp/bucket_plan.h"
#include "medfusion/distributed/process_group.h"

namespace medfusion {

// Note [Gradients live in buckets]
// A parameter's grad is a plain tensor over the bucket's storage, not an autograd view of it. All
// that LibTorch's users do to gradients then works without a copy: zero_grad in both modes (the C++
// optimizers call detach_, which throws on views), clip_grad_norm_, a second optimizer. When
// autograd puts another tensor in its place (after zero_grad(set_to_none), the first gradient is
// "stolen" from backward), the reducer copies it in and points grad here again.

// Note [Status element]
// One element after the gradients travels with them. A rank that could not fill the bucket
// (backward failed, or a parameter got no gradient) sends 1 in it, so that all ranks learn of it
// from the sum, without a collective of its own.

// Not thread safe; the reducer guards it.
class Bucket {
 public:
  // `members` index `parameters`, all of one dtype and device. Memory comes from group.Allocate.
  Bucket(ProcessGroup& group, std::vector<int> members, std::span<const BucketItem> items,
         std::span<const at::Tensor> parameters);

  const std::vector<int>& members() const { return members_; }
  // Where member k's gradient lives: a plain tensor of the parameter's shape and strides.
  const std::vector<at::Tensor>& slots() const { return slots_; }
  // All gradients [numel], and those with the status element [numel + 1].
  const at::Tensor& gradients() const { return gradients_; }
  const at::Tensor& wire() const { return wire_; }
  // float16 and bfloat16 sums can overflow: they are divided before they are sent.
  bool low_precision() const;

  void SetTrouble(bool trouble);
  // [1]. After the reduction: not 0 when any rank had trouble.
  const at::Tensor& status() const { return status_; }

 private:
  std::vector<int> members_;
  std::vector<at::Tensor> slots_;
  at::Tensor wire_;
  at::Tensor gradients_;
  at::Tensor status_;
};

// True when both tensors are the same elements of the same memory.
bool SameMemory(const at::Tensor& a, const at::Tensor& b);

}  // namespace medfusion

#endif  // MEDFUSION_DDP_BUCKET_H_
