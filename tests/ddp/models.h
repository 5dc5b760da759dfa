// Small modules that the DDP tests share, and ways to look at their gradients.
#ifndef MEDFUSION_TESTS_DDP_MODELS_H_
#define MEDFUSION_TESTS_DDP_MODELS_H_

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

namespace medfusion::testing {

// Two branches; each forward takes those that it is told to.
class TwoBranches : public torch::nn::Module {
 public:
  TwoBranches() {
    left = register_module("left", torch::nn::Linear(3, 2));
    right = register_module("right", torch::nn::Linear(3, 2));
  }
  at::Tensor forward(const at::Tensor& x, bool use_left, bool use_right) {
    at::Tensor out = torch::zeros({x.size(0), 2}, x.options());
    if (use_left) out = out + left->forward(x);
    if (use_right) out = out + right->forward(x);
    return out;
  }
  torch::nn::Linear left{nullptr}, right{nullptr};
};

// The identity, whose backward throws when told to.
struct Fuse : public torch::autograd::Function<Fuse> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            bool blow) {
    context->saved_data["blow"] = blow;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (context->saved_data["blow"].toBool()) throw std::runtime_error("the fuse blew");
    return {gradients[0], {}};
  }
};

// Linear, fuse, linear: when the fuse blows, the last layer has its gradients and the first has
// none.
class Fused : public torch::nn::Module {
 public:
  Fused() {
    first = register_module("first", torch::nn::Linear(3, 3));
    last = register_module("last", torch::nn::Linear(3, 1));
  }
  at::Tensor forward(const at::Tensor& x, bool blow) {
    return last->forward(Fuse::apply(first->forward(x), blow));
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
};

// What rank r feeds in: a matrix [rows, 3] of its own, the same in every run.
inline at::Tensor InputOf(int rank, int rows = 4) {
  return (torch::arange(rows * 3, at::kDouble).view({rows, 3}) + 5.0 * rank).sin();
}

// A copy of a module with the same values, for computing what one rank would.
template <typename M>
std::shared_ptr<M> DoubleModule() {
  auto module = std::make_shared<M>();
  module->to(at::kDouble);
  return module;
}

// Sets every parameter to numbers that depend on its place alone.
inline void FillParameters(torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  double start = 1;
  for (at::Tensor& p : module.parameters()) {
    p.copy_((torch::arange(p.numel(), p.options().requires_grad(false)) + start).cos().view_as(p));
    start += 3;
  }
}

inline bool Close(const at::Tensor& a, const at::Tensor& b) {
  return torch::allclose(a, b, /*rtol=*/1e-12, /*atol=*/1e-13);
}

}  // namespace medfusion::testing

#endif  // MEDFUSION_TESTS_DDP_MODELS_H_
