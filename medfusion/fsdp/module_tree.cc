#include "medfusion/fsdp/module_tree.h"

#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <unordered_set>

namespace medfusion {
namespace {

bool IsContainer(const torch::nn::Module& module) {
  return module.as<torch::nn::SequentialImpl>() != nullptr ||
         module.as<torch::nn::ModuleListImpl>() != nullptr ||
         module.as<torch::nn::ModuleDictImpl>() != nullptr;
}

class Walker {
 public:
  explicit Walker(ModuleTree& tree) : tree_(tree) {}

  ModuleNode Visit(const torch::nn::Module& module, const std::string& path) {
    ModuleNode node;
    node.path = path;
    node.type = module.name();
    node.container = IsContainer(module);
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      if (!seen_.insert(item.value().unsafeGetTensorImpl()).second) continue;
      node.parameters.push_back(static_cast<int>(tree_.parameters.size()));
      tree_.parameters.emplace_back(Join(path, item.key()), item.value());
    }
    for (const auto& item : module.named_buffers(/*recurse=*/false)) {
      if (!item.value().defined()) continue;
      if (!seen_.insert(item.value().unsafeGetTensorImpl()).second) continue;
      tree_.buffers.emplace_back(Join(path, item.key()), item.value());
    }
    for (const auto& item : module.named_children()) {
      node.children.push_back(Visit(*item.value(), Join(path, item.key())));
    }
    return node;
  }

 private:
  static std::string Join(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + "." + name;
  }

  ModuleTree& tree_;
  std::unordered_set<const c10::TensorImpl*> seen_;
};

}  // namespace

ModuleTree DescribeModule(const torch::nn::Module& module) {
  ModuleTree tree;
  tree.root = Walker(tree).Visit(module, "");
  return tree;
}

}  // namespace medfusion
