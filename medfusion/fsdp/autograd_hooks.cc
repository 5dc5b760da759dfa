#include "medfusion/fsdp/autograd_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <stdexcept>
#include <utility>

namespace medfusion {
namespace {

class ArrivalHook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit ArrivalHook(std::function<void()> arrived) : arrived_(std::move(arrived)) {}
  void operator()(const at::Tensor&) override { arrived_(); }

 private:
  std::function<void()> arrived_;
};

// LibTorch forgets a backward's callbacks when it fails, without a call. Their destruction is the
// sign.
class End {
 public:
  End(std::function<void()> finish, std::function<void()> abandon)
      : finish_(std::move(finish)), abandon_(std::move(abandon)) {}
  ~End() {
    if (!finished_) abandon_();
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void Finish() {
    finish_();
    finished_ = true;
  }

 private:
  std::function<void()> finish_;
  std::function<void()> abandon_;
  bool finished_ = false;
};

}  // namespace

void HookGradient(const at::Tensor& parameter, std::function<void()> arrived) {
  if (torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr) {
    throw std::invalid_argument(
        "the parameter already reports its gradients to another wrapper; wrap a module once, and "
        "destroy the old wrapper before making a new one");
  }
  torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                 std::make_unique<ArrivalHook>(std::move(arrived)));
}

void UnhookGradient(const at::Tensor& parameter) {
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

int CurrentBackward() { return torch::autograd::get_current_graph_task_id(); }

void WhenBackwardEnds(std::function<void()> finish, std::function<void()> abandon) {
  auto end = std::make_shared<End>(std::move(finish), std::move(abandon));
  torch::autograd::Engine::get_default_engine().queue_callback([end] { end->Finish(); });
}

}  // namespace medfusion
