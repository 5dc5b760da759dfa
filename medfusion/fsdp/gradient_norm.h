// The norm of a gradient that is spread over ranks.
#ifndef MEDFUSION_FSDP_GRADIENT_NORM_H_
#define MEDFUSION_FSDP_GRADIENT_NORM_H_

#include <ATen/core/Tensor.h>

#include <span>

#include "medfusion/distributed/process_group.h"

namespace medfusion {

struct GradientNorm {
  double norm = 0;     // infinity or NaN as of the gradients when not finite
  bool finite = true;  // the same on all ranks: the caller's one decision to skip the step
};

// Collective over `all`. The ranks of `shards`, which are some or all of them, each hold a part of
// every gradient. The 2-norm of these parts together, computed in float64 and scaled by the largest
// element, so that it overflows only when the norm itself does. Not finite when it is not on any
// rank of `all`, so that replicas decide alike too.
GradientNorm GlobalGradientNorm(std::span<const at::Tensor> gradients, ProcessGroup& shards,
                                ProcessGroup& all);

// Collective. Scales the gradients down to `max_norm` when their norm is larger; leaves them
// untouched when it is not finite. Returns the norm before. Throws std::invalid_argument when
// max_norm is negative or NaN. PyTorch: clip_grad_norm_, without its 1e-6: exactly max_norm
// results.
GradientNorm ClipGlobalGradientNorm(std::span<const at::Tensor> gradients, double max_norm,
                                    ProcessGroup& shards, ProcessGroup& all);

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_GRADIENT_NORM_H_
