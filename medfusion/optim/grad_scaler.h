// Loss scaling for float16, whose small gradients would underflow to zero.
//
//   medfusion::GradScaler scaler;
//   scaler.Scale(loss).backward();
//   scaler.Unscale(optimizer);          // only when the gradients are needed, for clipping
//   model->ClipGradNorm(1.0);
//   scaler.Step(optimizer);             // leaves the step out on all ranks when one overflowed
//   scaler.Update();
#ifndef MEDFUSION_OPTIM_GRAD_SCALER_H_
#define MEDFUSION_OPTIM_GRAD_SCALER_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "medfusion/distributed/process_group.h"

namespace medfusion {

// The same on all ranks. Defaults are PyTorch's.
struct GradScalerOptions {
  double init_scale = 65536;
  // The scale is multiplied by growth_factor after growth_interval updates in a row without
  // overflow, and by backoff_factor after one with.
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  // Off: Scale and Unscale change nothing, Step always steps.
  bool enabled = true;
  // The ranks that decide together whether a step is taken; the default group when null, and this
  // rank alone when there is none. Needed wherever ranks hold different gradients, as with FSDP.
  std::shared_ptr<ProcessGroup> group;
};

// What an exact resumption needs.
struct GradScalerState {
  double scale = 0;
  int64_t clean_steps = 0;  // updates without overflow since the scale last changed
  friend bool operator==(const GradScalerState&, const GradScalerState&) = default;
};

// PyTorch: torch.amp.GradScaler and ShardedGradScaler. Used by one thread. Each round is Scale,
// then Unscale if wanted and Step for each optimizer, then Update. Throws std::logic_error when
// they are called in another order.
class GradScaler {
 public:
  // Throws std::invalid_argument for factors that cannot work.
  explicit GradScaler(GradScalerOptions options = {});

  // loss * scale(). Keep the loss in float32: the product may be more than float16 holds.
  at::Tensor Scale(const at::Tensor& loss) const;

  // Collective. Divides the gradients of `optimizer`'s parameters by the scale, in place. False, on
  // all ranks, when one of them is infinite or NaN on any rank. The optimizer identifies the round;
  // its parameters need gradients on no rank. Throws std::invalid_argument for float16 gradients,
  // which must be float32 to be divided (as FSDPWrapper's and autocast's are).
  bool Unscale(torch::optim::Optimizer& optimizer);

  // The same for gradients that no one optimizer has, before that round's Update. Their verdict
  // counts in Update; the caller leaves out the step.
  bool Unscale(std::span<const at::Tensor> gradients);

  // Unscales what has not been (collective then), and steps if all was finite. True if it did.
  bool Step(torch::optim::Optimizer& optimizer);

  // Ends the round: adapts the scale to what the ranks found. Not collective.
  void Update();

  double scale() const { return options_.enabled ? state_.scale : 1.0; }
  bool enabled() const { return options_.enabled; }

  // Between rounds. Throws std::invalid_argument for a scale that is no positive finite number.
  GradScalerState state() const { return state_; }
  void SetState(const GradScalerState& state);

 private:
  struct Round {
    bool finite = true;
    bool stepped = false;
  };

  bool UnscaleHere(std::span<const at::Tensor> gradients) const;
  bool OnAllRanks(bool finite) const;

  GradScalerOptions options_;
  GradScalerState state_;
  // Of the round under way, by optimizer; null for gradients without one.
  std::map<const torch::optim::Optimizer*, Round> rounds_;
};

}  // namespace medfusion

#endif  // MEDFUSION_OPTIM_GRAD_SCALER_H_
