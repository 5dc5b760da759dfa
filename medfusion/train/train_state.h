// A model and its optimizer as named tensors, and back.
#ifndef MEDFUSION_TRAIN_TRAIN_STATE_H_
#define MEDFUSION_TRAIN_TRAIN_STATE_H_

#include <ATen/core/Tensor.h>
#include <absl/status/status.h>
#include <torch/optim/adamw.h>

#include <map>
#include <string>

#include "medfusion/distributed/process_group.h"
#include "medfusion/train/model_strategy.h"

namespace medfusion {

using NamedTensors = std::map<std::string, at::Tensor>;

// Copies of all parameters and buffers, whole and on the CPU, as `prefix` + name. Collective, like
// all of these, where the strategy shards parameters.
void CaptureModule(ModelStrategy& model, const std::string& prefix, NamedTensors& into);

// The reverse, in place. InvalidArgument, naming the tensor, when one is missing or has another
// shape or dtype; the module may then be partly restored.
absl::Status RestoreModule(const NamedTensors& from, const std::string& prefix,
                           ModelStrategy& model);

// The same for the optimizer of model.parameters(): moments and step counts. The moments of sharded
// parameters are put together, so that any strategy on any number of ranks can take them up.
// Collective over `group`, the ranks that train.
void CaptureAdamW(const ModelStrategy& model, ProcessGroup& group, torch::optim::AdamW& optimizer,
                  const std::string& prefix, NamedTensors& into);
absl::Status RestoreAdamW(const NamedTensors& from, const std::string& prefix,
                          const ModelStrategy& model, torch::optim::AdamW& optimizer);

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_TRAIN_STATE_H_
