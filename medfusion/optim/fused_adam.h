// torch::optim::Adam and AdamW with one pass over each parameter instead of one per operation.
//
//   medfusion::FusedAdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
#ifndef MEDFUSION_OPTIM_FUSED_ADAM_H_
#define MEDFUSION_OPTIM_FUSED_ADAM_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

namespace medfusion {

// Is a torch::optim::AdamW: schedulers, parameter groups, torch::save and torch::load work
// unchanged, and either class loads what the other saved. Equal to it but for rounding; the memory
// format of saved state may differ. For any parameters, with or without DDPWrapper and FSDPWrapper.
// PyTorch: torch.optim.AdamW(fused=True).
//
// Neighbours in memory, such as an FSDPWrapper's slices and their gradients, are updated as one
// tensor: see Note [Runs]. One thread uses an optimizer at a time.
class FusedAdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;

  // Updates every parameter that has a gradient. Not collective. Throws std::invalid_argument, and
  // leaves all parameters untouched, when one cannot be updated: sparse gradients, overlapping or
  // gapped memory, dtypes other than float16, bfloat16, float32 and float64, state of another
  // shape. The text names the parameter's index and group.
  at::Tensor step(LossClosure closure = nullptr) override;
};

// The same for torch::optim::Adam, whose weight decay is part of the gradient.
class FusedAdam : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;

  at::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace medfusion

#endif  // MEDFUSION_OPTIM_FUSED_ADAM_H_
