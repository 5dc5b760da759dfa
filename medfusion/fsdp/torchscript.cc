#include "medfusion/fsdp/torchscript.h"

#include <string>
#include <unordered_set>

namespace medfusion {
namespace {

std::string TypeName(const torch::jit::Module& module) {
  const auto& name = module.type()->name();
  return name ? name->qualifiedName() : "";
}

bool IsContainer(const std::string& type) {
  return type.find("torch.nn.modules.container.") != std::string::npos &&
         type.find("Parameter") == std::string::npos;
}

std::string Join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

class ScriptWalker {
 public:
  explicit ScriptWalker(ModuleTree& tree) : tree_(tree) {}

  ModuleNode Visit(const torch::jit::Module& module, const std::string& path) {
    ModuleNode node;
    node.path = path;
    node.type = TypeName(module);
    node.container = IsContainer(node.type);
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      if (!IsNew(item.value)) continue;
      node.parameters.push_back(static_cast<int>(tree_.parameters.size()));
      tree_.parameters.emplace_back(Join(path, item.name), item.value);
    }
    for (const auto& item : module.named_buffers(/*recurse=*/false)) {
      if (IsNew(item.value)) tree_.buffers.emplace_back(Join(path, item.name), item.value);
    }
    for (const auto& item : module.named_children()) {
      node.children.push_back(Visit(item.value, Join(path, item.name)));
    }
    return node;
  }

 private:
  bool IsNew(const at::Tensor& tensor) {
    return tensor.defined() && seen_.insert(tensor.unsafeGetTensorImpl()).second;
  }

  ModuleTree& tree_;
  std::unordered_set<const c10::TensorImpl*> seen_;
};

}  // namespace

ModuleTree DescribeScriptModule(const torch::jit::Module& module) {
  ModuleTree tree;
  tree.root = ScriptWalker(tree).Visit(module, "");
  return tree;
}

}  // namespace medfusion
