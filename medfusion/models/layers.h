// Choices and checks that the models share.
#ifndef MEDFUSION_MODELS_LAYERS_H_
#define MEDFUSION_MODELS_LAYERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace medfusion {

enum class Activation { kRelu, kGelu };

// kBatch makes a sample's output depend on its batch, in training; convert such a model to
// SyncBatchNorm where the ranks' batches are small.
enum class Norm { kNone, kLayer, kBatch };

at::Tensor Activate(Activation activation, const at::Tensor& x);

// Throws c10::Error, naming `what` and the shape, unless `x` has these sizes; -1 stands for any.
void CheckSizes(const char* what, const at::Tensor& x, const std::vector<int64_t>& expected);

// Throws c10::Error unless value >= least; `what` names the option: "TabularEncoder: in_features".
void CheckOption(const char* what, int64_t value, int64_t least = 1);

// Throws c10::Error unless 0 <= p < 1.
void CheckDropout(const char* what, double p);

}  // namespace medfusion

#endif  // MEDFUSION_MODELS_LAYERS_H_
