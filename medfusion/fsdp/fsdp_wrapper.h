// Fully sharded training of an unmodified module: each rank holds a part of every parameter, and
// the whole of two units at a time.
//
//   auto net = std::make_shared<Net>();
//   medfusion::FSDPWrapper model(net, {medfusion::ShardingStrategy::FULL_SHARD, 1'000'000});
//   torch::optim::AdamW optimizer(model->parameters(), 1e-3);   // after wrapping, of the wrapper
//   auto loss = torch::cross_entropy_loss(model->forward(x), y);
//   loss.backward();       // averages the gradients over the ranks, into the shards
//   optimizer.step();      // each rank its own part
//
// docs/fsdp.md describes the design, the guarantees and the limits.
#ifndef MEDFUSION_FSDP_FSDP_WRAPPER_H_
#define MEDFUSION_FSDP_FSDP_WRAPPER_H_

#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "medfusion/fsdp/full_parameters.h"
#include "medfusion/fsdp/options.h"
#include "medfusion/fsdp/sharded_model.h"

namespace medfusion {

// What an FSDPWrapper<Net> holds: a shared_ptr for a module class, the holder for a TORCH_MODULE;
// torchscript.h adds TorchScript's.
template <typename Net, typename = void>
struct ShardableModule {
  using Impl = Net;
  using Handle = std::shared_ptr<Net>;
  static std::shared_ptr<Impl> Pointer(const Handle& handle) { return handle; }
  static ModuleTree Describe(const Impl& module) { return DescribeModule(module); }
};
template <typename Net>
struct ShardableModule<Net, std::void_t<typename Net::ContainedType>> {
  using Impl = typename Net::ContainedType;
  using Handle = Net;
  static std::shared_ptr<Impl> Pointer(const Handle& handle) { return handle.ptr(); }
  static ModuleTree Describe(const Impl& module) { return DescribeModule(module); }
};

// FSDPWrapper<torch::nn::Sequential>, FSDPWrapper<MyNetImpl>; the type follows from the argument.
// One thread uses it. Move the module to its device and dtype, and decide what is frozen
// (requires_grad), before wrapping it. The wrapper takes over the parameters' memory and outlives
// every use of the module. PyTorch: FullyShardedDataParallel(use_orig_params=True).
template <typename Net>
class FSDPWrapper {
 public:
  using Handle = typename ShardableModule<Net>::Handle;
  using Impl = typename ShardableModule<Net>::Impl;

  // Collective. Compares options, units, and the parameters' and buffers' names, dtypes, shapes
  // and strides over the ranks; makes all values rank 0's. Throws std::invalid_argument on all
  // ranks, naming what differs; when unit_names has an unknown module; when a tensor is on a device
  // that the group does not serve.
  explicit FSDPWrapper(Handle module, FSDPOptions options = {})
      : module_(std::move(module)),
        impl_(ShardableModule<Net>::Pointer(module_)),
        model_(std::make_unique<ShardedModel>(ShardableModule<Net>::Describe(*impl_),
                                              std::move(options))) {}

  // So that a wrapper reads like the module's holder: model->forward(x).
  FSDPWrapper* operator->() { return this; }
  const FSDPWrapper* operator->() const { return this; }

  // The module's forward, with its arguments and its result, whatever they are. Collective: every
  // rank runs the same modules in the same order. Throws std::logic_error when a rank does not (in
  // the first step: on all ranks, by unit name; later at the end of backward, before an optimizer
  // sees a gradient), when the module writes to a parameter, inside a FullParameters scope, or on a
  // second thread. After an exception, its own or the module's, the next step starts afresh.
  template <typename... Args>
  decltype(auto) forward(Args&&... args) {
    ShardedModel::ForwardScope scope(*model_);
    using Result = decltype(impl_->forward(Input(std::forward<Args>(args))...));
    if constexpr (std::is_void_v<Result>) {
      impl_->forward(Input(std::forward<Args>(args))...);
      scope.End();
    } else if constexpr (std::is_same_v<Result, at::Tensor>) {
      at::Tensor result = impl_->forward(Input(std::forward<Args>(args))...);
      scope.End();
      return model_->CastOutput(result);
    } else {
      Result result = impl_->forward(Input(std::forward<Args>(args))...);
      scope.End();
      return static_cast<Result>(result);
    }
  }

  // The wrapped module, as it was given. Outside of forward, backward and FullParameters an
  // operator on its parameters throws; their shapes can be read.
  const Handle& module() const { return module_; }

  // For optimizers: this rank's slice of each parameter, once, under the module's name for it: a
  // flat tensor, possibly empty, that shares the shard's memory and receives the averaged gradient
  // (with NO_SHARD, of the parameter's shape). Elementwise optimizers give what they would give
  // unsharded. LBFGS is refused, with std::invalid_argument from the forward that it calls; other
  // optimizers that look at whole tensors give wrong results.
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> result;
    for (const auto& [name, slice] : model_->named_parameters()) result.push_back(slice);
    return result;
  }
  const std::vector<std::pair<std::string, at::Tensor>>& named_parameters() const {
    return model_->named_parameters();
  }
  std::vector<at::Tensor> buffers() const { return impl_->buffers(); }
  auto named_buffers() const { return impl_->named_buffers(); }
  void train(bool on = true) { impl_->train(on); }
  void eval() { impl_->eval(); }
  bool is_training() const { return impl_->is_training(); }
  // Also of gradients that no_sync() has kept back, which an optimizer's zero_grad does not know.
  void zero_grad(bool set_to_none = true) { model_->ZeroGrad(set_to_none); }

  // Collective. Scales all gradients by one factor so that their norm over all parameters and ranks
  // is at most max_norm. When it is not finite they stay untouched and `finite` is false, on all
  // ranks alike: skip the step.
  GradientNorm ClipGradNorm(double max_norm) { return model_->ClipGradNorm(max_norm); }
  // How often it was not finite; the same on all ranks. Each time, rank 0 logs a warning.
  int64_t nonfinite_gradients() const { return model_->nonfinite_gradients(); }

  // { auto guard = model->no_sync(); loss.backward(); }   Gradients add up whole on each rank,
  // without communication, until a backward outside of the guard reduces them all. Without it,
  // every backward adds to the shards' gradients, and memory stays sharded.
  [[nodiscard]] NoReduceGuard no_sync() { return NoReduceGuard(model_->reducer()); }

  // How this rank's slices make up the parameters, for checkpoints. Not collective.
  std::vector<ShardedTensor> DescribeState() const { return model_->DescribeState(); }

  const std::shared_ptr<ProcessGroup>& group() const { return model_->group(); }
  ShardedModel& sharded_model() { return *model_; }

 private:
  // An argument of forward: tensors, TorchScript values that are tensors, and vectors of either
  // are cast.
  template <typename Arg>
  decltype(auto) Input(Arg&& arg) const {
    using Value = std::decay_t<Arg>;
    if constexpr (std::is_same_v<Value, at::Tensor>) {
      return model_->CastInput(arg);
    } else if constexpr (std::is_same_v<Value, c10::IValue>) {
      return arg.isTensor() ? c10::IValue(model_->CastInput(arg.toTensor())) : arg;
    } else if constexpr (std::is_same_v<Value, std::vector<at::Tensor>> ||
                         std::is_same_v<Value, std::vector<c10::IValue>>) {
      Value cast;
      for (const auto& element : arg) cast.push_back(Input(element));
      return cast;
    } else {
      return std::forward<Arg>(arg);
    }
  }

  Handle module_;
  std::shared_ptr<Impl> impl_;
  std::unique_ptr<ShardedModel> model_;
};

template <typename Module>
FSDPWrapper(std::shared_ptr<Module>, FSDPOptions = {}) -> FSDPWrapper<Module>;
template <typename Holder, typename = typename Holder::ContainedType>
FSDPWrapper(Holder, FSDPOptions = {}) -> FSDPWrapper<Holder>;

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_FSDP_WRAPPER_H_
