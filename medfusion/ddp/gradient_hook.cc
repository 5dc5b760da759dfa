#include "medfusion/ddp/gradient_hook.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <stdexcept>
#include <utility>

namespace medfusion {
namespace {

class GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientHook(std::function<void()> hook) : hook_(std::move(hook)) {}
  void operator()(const at::Tensor&) override { hook_(); }

 private:
  std::function<void()> hook_;
};

}  // namespace

void SetGradientHook(const at::Tensor& parameter, std::function<void()> hook) {
  if (torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr) {
    throw std::invalid_argument(
        "the parameter already reports its gradients to another reducer; wrap a module once, and "
        "destroy the old wrapper before making a new one");
  }
  torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                 std::make_unique<GradientHook>(std::move(hook)));
}

void ClearGradientHook(const at::Tensor& parameter) {
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void AtEndOfBackward(std::function<void()> callback) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

}  // namespace medfusion
