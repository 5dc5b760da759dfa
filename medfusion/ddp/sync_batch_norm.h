// Batch norm over the joint batch of all ranks.
#ifndef MEDFUSION_DDP_SYNC_BATCH_NORM_H_
#define MEDFUSION_DDP_SYNC_BATCH_NORM_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "medfusion/distributed/process_group.h"

namespace medfusion {

// Normalises `input` [N, C, *] over the N and * of all ranks of `group`, as one batch norm over the
// joined batch would: torch::batch_norm in training mode. N may differ per rank and be 0 on some.
// running_mean and running_var are updated in place when given. weight's and bias's gradients are
// of this rank's samples, to be averaged like any other. Differentiable once. Collective: one
// all-gather of 2C+1 numbers here and one all-reduce of 2C in backward. PyTorch:
// torch.nn.SyncBatchNorm.
at::Tensor SyncBatchNorm(const std::shared_ptr<ProcessGroup>& group, const at::Tensor& input,
                         const std::optional<at::Tensor>& weight,
                         const std::optional<at::Tensor>& bias,
                         const std::optional<at::Tensor>& running_mean,
                         const std::optional<at::Tensor>& running_var, double momentum, double eps);

// While it lives, every batch norm in training mode that this thread computes is a SyncBatchNorm
// over `group`, whoever calls it: torch::nn::BatchNorm1d/2d/3d as a member or in a Sequential, a
// functional call, TorchScript. Instance norms stay local. Backward need not be inside. See Note
// [Intercepting batch norm].
class SyncBatchNormScope {
 public:
  explicit SyncBatchNormScope(std::shared_ptr<ProcessGroup> group);
  ~SyncBatchNormScope();
  SyncBatchNormScope(const SyncBatchNormScope&) = delete;
  SyncBatchNormScope& operator=(const SyncBatchNormScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DDP_SYNC_BATCH_NORM_H_
