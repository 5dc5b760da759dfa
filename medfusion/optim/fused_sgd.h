// torch::optim::SGD with one pass over each parameter instead of one per operation.
//
//   medfusion::FusedSGD optimizer(model->parameters(),
//   torch::optim::SGDOptions(0.1).momentum(0.9));
#ifndef MEDFUSION_OPTIM_FUSED_SGD_H_
#define MEDFUSION_OPTIM_FUSED_SGD_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/sgd.h>

namespace medfusion {

// Takes parameters, groups and options as torch::optim::SGD does, keeps the same state, and gives
// the same result but for rounding: see FusedAdamW. Sparse gradients are taken without momentum and
// weight decay. PyTorch: torch.optim.SGD(fused=True).
class FusedSGD : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;

  // See FusedAdamW::step.
  at::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace medfusion

#endif  // MEDFUSION_OPTIM_FUSED_SGD_H_
