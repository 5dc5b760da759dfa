// Which parameters the outputs of a forward depend on.
#ifndef MEDFUSION_DDP_UNUSED_PARAMETERS_H_
#define MEDFUSION_DDP_UNUSED_PARAMETERS_H_

#include <ATen/core/Tensor.h>

#include <span>
#include <unordered_map>
#include <vector>

namespace medfusion {

// Parameters by identity.
using ParameterIndex = std::unordered_map<const c10::TensorImpl*, int>;

// Walks the autograd graph from `outputs` and sets reached[i] for every parameter i of `index` that
// backward would reach. Leaves other entries alone. Costs a visit per node of the graph.
void MarkReachable(std::span<const at::Tensor> outputs, const ParameterIndex& index,
                   std::vector<char>& reached);

}  // namespace medfusion

#endif  // MEDFUSION_DDP_UNUSED_PARAMETERS_H_
