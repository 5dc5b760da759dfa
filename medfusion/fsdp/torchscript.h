// FSDPWrapper for TorchScript modules, such as those that Python saved with torch.jit.save.
//
//   torch::jit::Module net = torch::jit::load("net.pt");
//   medfusion::FSDPWrapper model(net, options);
//   at::Tensor y = model->forward(x).toTensor();
//
// The wrapper takes over the parameters of `net` itself, which is a reference to the script object.
// Fusers and freezing copy parameters into constants; do neither before wrapping.
#ifndef MEDFUSION_FSDP_TORCHSCRIPT_H_
#define MEDFUSION_FSDP_TORCHSCRIPT_H_

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "medfusion/fsdp/fsdp_wrapper.h"

namespace medfusion {

// As for torch::nn::Module. torch.nn's Sequential, ModuleList and ModuleDict are containers.
ModuleTree DescribeScriptModule(const torch::jit::Module& module);

template <>
struct ShardableModule<torch::jit::Module> {
  // A script module as FSDPWrapper expects one.
  class Impl {
   public:
    explicit Impl(torch::jit::Module module) : module_(std::move(module)) {}
    // The method's arguments one by one, or all of them as one std::vector<c10::IValue>.
    template <typename... Args>
    c10::IValue forward(Args&&... args) {
      if constexpr (std::is_same_v<std::tuple<std::decay_t<Args>...>,
                                   std::tuple<std::vector<c10::IValue>>>) {
        return module_.forward(std::forward<Args>(args)...);
      } else {
        return module_.forward({c10::IValue(std::forward<Args>(args))...});
      }
    }
    void train(bool on) { module_.train(on); }
    void eval() { module_.eval(); }
    bool is_training() const { return module_.is_training(); }
    std::vector<at::Tensor> buffers() const {
      std::vector<at::Tensor> result;
      for (const at::Tensor& buffer : module_.buffers()) result.push_back(buffer);
      return result;
    }
    auto named_buffers() const { return module_.named_buffers(); }
    const torch::jit::Module& module() const { return module_; }

   private:
    torch::jit::Module module_;
  };
  using Handle = torch::jit::Module;
  static std::shared_ptr<Impl> Pointer(const Handle& handle) {
    return std::make_shared<Impl>(handle);
  }
  static ModuleTree Describe(const Impl& impl) { return DescribeScriptModule(impl.module()); }
};

FSDPWrapper(torch::jit::Module, FSDPOptions = {})->FSDPWrapper<torch::jit::Module>;

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_TORCHSCRIPT_H_
