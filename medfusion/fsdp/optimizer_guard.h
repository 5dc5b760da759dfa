// Keeps optimizers that look at whole tensors away from slices of them.
#ifndef MEDFUSION_FSDP_OPTIMIZER_GUARD_H_
#define MEDFUSION_FSDP_OPTIMIZER_GUARD_H_

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace medfusion {

// Throws std::invalid_argument when `optimizer` is LBFGS, LibTorch's only optimizer whose update of
// an element depends on others: its dot products would be over each rank's slices alone. Call it
// where an optimizer meets a sharded model. Not collective.
void RequireElementwise(const torch::optim::Optimizer& optimizer);

// Note [LBFGS on the stack]
// An optimizer is made of slices, not of the wrapper, so the wrapper never sees it. But LBFGS alone
// calls forward from inside of its step: its frame is on the stack of the thread. To look costs
// some ten microseconds, so LbfgsWatch looks at the first forwards and then at every 64th; LBFGS
// calls forward up to 25 times a step, and is noticed within three.
class LbfgsWatch {
 public:
  // At each forward with gradients. Throws std::invalid_argument that names LBFGS when its step
  // runs this forward.
  void OnForward();

 private:
  int forwards_ = 0;
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_OPTIMIZER_GUARD_H_
