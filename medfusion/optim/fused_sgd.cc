#include "medfusion/optim/fused_sgd.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_sgd.h>

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "medfusion/optim/fused_step.h"

namespace medfusion {
namespace {

using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

// ATen's CPU kernel for 16-bit types computes the update but does not store it.
bool KernelServes(const StepBatch& batch) {
  return !batch.device.is_cpu() || batch.dtype == at::kFloat || batch.dtype == at::kDouble;
}

// One operation after another. `buffer` is undefined without momentum.
void PlainUpdate(const StepRun& run, const at::Tensor& buffer, const SGDOptions& options,
                 bool first) {
  at::Tensor update = run.gradient;
  if (options.weight_decay() != 0) update = update.add(run.parameter, options.weight_decay());
  if (buffer.defined()) {
    if (first) {
      buffer.copy_(update);
    } else {
      buffer.mul_(options.momentum()).add_(update, 1 - options.dampening());
    }
    update = options.nesterov() ? update.add(buffer, options.momentum()) : buffer;
  }
  run.parameter.add_(update, -options.lr());
}

// Runs of one batch which all take their first step with momentum, or none does.
struct KernelCall {
  std::vector<at::Tensor> parameters, gradients, buffers;

  void Run(const SGDOptions& options, bool first) const {
    if (parameters.empty()) return;
    at::_fused_sgd_(parameters, gradients, buffers, options.weight_decay(), options.momentum(),
                    options.lr(), options.dampening(), options.nesterov(), /*maximize=*/false,
                    first);
  }
};

void StepBatchOf(const StepBatch& batch, FusedSGD& optimizer, const SGDOptions& options) {
  KernelCall calls[2];  // later steps, first step
  for (const StepRun& run : batch.runs) {
    const bool first = options.momentum() != 0 && run.members.front().age == 0;
    at::Tensor buffer;
    if (options.momentum() != 0) {
      std::vector<at::Tensor*> buffers;
      for (const StepMember& member : run.members) {
        auto& state = optimizer.state()[member.key()];
        if (state == nullptr) state = std::make_unique<SGDParamState>();
        buffers.push_back(&static_cast<SGDParamState&>(*state).momentum_buffer());
      }
      buffer = JoinStates(run, buffers);
    }
    if (run.parameter.numel() == 0) continue;
    if (KernelServes(batch)) {
      KernelCall& call = calls[first];
      call.parameters.push_back(run.parameter);
      call.gradients.push_back(run.gradient);
      if (buffer.defined()) call.buffers.push_back(buffer);
    } else {
      PlainUpdate(run, buffer, options, first);
    }
  }
  calls[false].Run(options, false);
  calls[true].Run(options, true);
  for (const StepRun& run : batch.runs) MarkChanged(run);
}

// Takes the members with sparse gradients out of `members`.
std::vector<StepMember> TakeSparse(std::vector<StepMember>& members, const SGDOptions& options) {
  std::vector<StepMember> dense, sparse;
  for (StepMember& member : members) {
    if (member.gradient.is_sparse() && (options.momentum() != 0 || options.weight_decay() != 0)) {
      throw std::invalid_argument("FusedSGD cannot update " + PlaceOf(member) +
                                  ": its gradient is sparse, which excludes momentum and weight "
                                  "decay; make it dense (gradient.to_dense())");
    }
    (member.gradient.is_sparse() ? sparse : dense).push_back(std::move(member));
  }
  members = std::move(dense);
  return sparse;
}

}  // namespace

at::Tensor FusedSGD::step(LossClosure closure) {
  at::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure != nullptr) {
    at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  std::vector<std::vector<StepMember>> dense, sparse;
  for (size_t g = 0; g < param_groups().size(); ++g) {
    const auto& options = static_cast<const SGDOptions&>(param_groups()[g].options());
    const auto has_buffer = [&](const at::Tensor& parameter) {
      return static_cast<int64_t>(state().count(parameter.unsafeGetTensorImpl()));
    };
    dense.push_back(
        CollectMembers(param_groups()[g], g, "FusedSGD", /*allow_sparse=*/true, has_buffer));
    sparse.push_back(TakeSparse(dense.back(), options));
    for (const StepMember& member : dense.back()) {
      if (options.momentum() == 0 || member.age == 0) continue;
      CheckState(member,
                 static_cast<const SGDParamState&>(*state()[member.key()]).momentum_buffer(),
                 "momentum_buffer");
    }
  }
  for (size_t g = 0; g < param_groups().size(); ++g) {
    const auto& options = static_cast<const SGDOptions&>(param_groups()[g].options());
    for (const StepBatch& batch : MakeBatches(std::move(dense[g]))) {
      StepBatchOf(batch, *this, options);
    }
    for (const StepMember& member : sparse[g]) {
      member.parameter.add_(member.gradient, -options.lr());
    }
  }
  return loss;
}

}  // namespace medfusion
