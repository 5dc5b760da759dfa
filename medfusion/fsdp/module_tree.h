// What FSDP needs to know of a module: its tree, its parameters, its buffers.
#ifndef MEDFUSION_FSDP_MODULE_TREE_H_
#define MEDFUSION_FSDP_MODULE_TREE_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "medfusion/fsdp/unit_policy.h"

namespace medfusion {

struct ModuleTree {
  ModuleNode root;
  // Each tensor once, under the first of its names, in the order of the tree. ModuleNode's indices
  // count these.
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::vector<std::pair<std::string, at::Tensor>> buffers;
};

// Registered parameters, buffers and modules; those that are undefined (a bias that is off) are
// left out. The tensors are the module's own.
ModuleTree DescribeModule(const torch::nn::Module& module);

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_MODULE_TREE_H_
