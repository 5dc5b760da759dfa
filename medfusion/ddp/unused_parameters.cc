#include "medfusion/ddp/unused_parameters.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

namespace medfusion {

void MarkReachable(std::span<const at::Tensor> outputs, const ParameterIndex& index,
                   std::vector<char>& reached) {
  std::vector<torch::autograd::Node*> to_visit;
  std::unordered_set<torch::autograd::Node*> seen;
  const auto visit = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) to_visit.push_back(node);
  };
  const auto mark = [&](const at::Tensor& leaf) {
    const auto found = index.find(leaf.unsafeGetTensorImpl());
    if (found != index.end()) reached[found->second] = 1;
  };
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    // A parameter returned as it is has no node of its own yet.
    if (output.is_leaf()) mark(output);
    visit(output.grad_fn().get());
  }
  while (!to_visit.empty()) {
    torch::autograd::Node* node = to_visit.back();
    to_visit.pop_back();
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
      mark(leaf->variable);
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
}

}  // namespace medfusion
