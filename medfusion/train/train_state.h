// A model and its optimizer as named tensors, and back.
#ifndef MEDFUSION_TRAIN_TRAIN_STATE_H_
#define MEDFUSION_TRAIN_TRAIN_STATE_H_

#include <ATen/core/Tensor.h>
#include <absl/status/status.h>
#include <torch/nn/module.h>
#include <torch/optim/adamw.h>

#include <map>
#include <string>

namespace medfusion {

using NamedTensors = std::map<std::string, at::Tensor>;

// Copies of all parameters and buffers, on the CPU, as `prefix` + name.
void CaptureModule(const torch::nn::Module& module, const std::string& prefix, NamedTensors& into);

// The reverse, in place. InvalidArgument, naming the tensor, when one is missing or has another
// shape or dtype; the module may then be partly restored.
absl::Status RestoreModule(const NamedTensors& from, const std::string& prefix,
                           torch::nn::Module& module);

// The same for the optimizer of `module`'s parameters: moments and step counts.
void CaptureAdamW(const torch::nn::Module& module, torch::optim::AdamW& optimizer,
                  const std::string& prefix, NamedTensors& into);
absl::Status RestoreAdamW(const NamedTensors& from, const std::string& prefix,
                          const torch::nn::Module& module, torch::optim::AdamW& optimizer);

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_TRAIN_STATE_H_
