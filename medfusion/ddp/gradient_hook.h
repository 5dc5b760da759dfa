// The two places where LibTorch's autograd engine calls us. Both run on the thread that computes
// the gradient (on CPU, the one that called backward).
#ifndef MEDFUSION_DDP_GRADIENT_HOOK_H_
#define MEDFUSION_DDP_GRADIENT_HOOK_H_

#include <ATen/core/Tensor.h>

#include <functional>

namespace medfusion {

// Calls `hook` whenever backward has added to parameter.grad(). Throws std::invalid_argument when
// the parameter has such a hook already: LibTorch keeps one.
void SetGradientHook(const at::Tensor& parameter, std::function<void()> hook);
void ClearGradientHook(const at::Tensor& parameter);

// Inside a gradient hook: calls `callback` at the end of this backward, in time for its exceptions
// to come out of backward(). Not called when backward itself fails.
void AtEndOfBackward(std::function<void()> callback);

}  // namespace medfusion

#endif  // MEDFUSION_DDP_GRADIENT_HOOK_H_
