// What the fused optimizers share: which tensors a step passes to a kernel.
#ifndef MEDFUSION_OPTIM_FUSED_STEP_H_
#define MEDFUSION_OPTIM_FUSED_STEP_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace medfusion {

// A parameter that has a gradient.
struct StepMember {
  at::Tensor parameter;  // fills its memory: no gaps, no overlap
  at::Tensor gradient;   // of the parameter's strides, or sparse
  int64_t age = 0;       // what it has to share with others that are updated together
  size_t group = 0;      // where it is among the optimizer's parameters
  size_t index = 0;
  void* key() const { return parameter.unsafeGetTensorImpl(); }  // of its state
};

// Note [Runs]
// The slices that FSDP gives an optimizer lie one after another in a shard, and so do their
// gradients. A run is a row of such neighbours; kernels see it as one tensor, so that a hundred
// small parameters cost what one large one does. The state of a run's members then has to be
// neighbours too: each member's is a view of one tensor for the run. State that comes from
// elsewhere (loaded, or from before the members were neighbours) moves there at the next step.
struct StepRun {
  std::vector<StepMember> members;
  at::Tensor parameter;  // over all members; flat when there are several
  at::Tensor gradient;
};

// Runs that one kernel call can take: of one device and dtype.
struct StepBatch {
  c10::Device device;
  c10::ScalarType dtype;
  std::vector<StepRun> runs;
};

// The members of parameter group `index`; `age` tells theirs from their state. Changes nothing.
// Throws std::invalid_argument as FusedAdamW::step; `optimizer` is its name.
std::vector<StepMember> CollectMembers(
    const torch::optim::OptimizerParamGroup& group, size_t index, std::string_view optimizer,
    bool allow_sparse, const std::function<int64_t(const at::Tensor& parameter)>& age);

// "parameter 3 of group 0", for errors.
std::string PlaceOf(const StepMember& member);

// Joins neighbours of one age, and sorts the runs by device and dtype. No sparse ones.
std::vector<StepBatch> MakeBatches(std::vector<StepMember> members);

// The run's state as one tensor. `states` are the members' own; undefined ones become zeros, and
// those that are not neighbours yet become views of a new tensor.
at::Tensor JoinStates(const StepRun& run, const std::vector<at::Tensor*>& states);

// Throws std::invalid_argument when `state` is defined and not of the parameter's shape.
void CheckState(const StepMember& member, const at::Tensor& state, std::string_view name);

// A graph that saved one of the parameters finds at its backward that the values have changed.
// ATen's fused kernels do not see to that.
void MarkChanged(const StepRun& run);

}  // namespace medfusion

#endif  // MEDFUSION_OPTIM_FUSED_STEP_H_
