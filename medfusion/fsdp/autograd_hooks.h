// The two places where LibTorch's autograd engine calls FSDP. Both run on the thread that computes
// the gradient (on CPU, the one that called backward).
#ifndef MEDFUSION_FSDP_AUTOGRAD_HOOKS_H_
#define MEDFUSION_FSDP_AUTOGRAD_HOOKS_H_

#include <ATen/core/Tensor.h>

#include <functional>

namespace medfusion {

// Calls `arrived` whenever backward has added to parameter.grad(). Throws std::invalid_argument
// when the parameter has such a hook already: LibTorch keeps one.
void HookGradient(const at::Tensor& parameter, std::function<void()> arrived);
void UnhookGradient(const at::Tensor& parameter);

// The backward pass that runs on this thread, or -1.
int CurrentBackward();

// Inside a gradient hook: when this backward ends, calls `finish`, whose exceptions come out of
// backward(); when backward fails, or `finish` throws, calls `abandon`, which must not throw.
void WhenBackwardEnds(std::function<void()> finish, std::function<void()> abandon);

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_AUTOGRAD_HOOKS_H_
