// Data-parallel training of an unmodified module: each rank has a copy and a part of the batch.
//
//   torch::nn::Sequential net(...);
//   medfusion::DDPWrapper model(net);
//   torch::optim::SGD optimizer(model->parameters(), 0.1);
//   auto loss = torch::cross_entropy_loss(model->forward(x), y);
//   loss.backward();       // averages the gradients over the ranks as they arrive
//   optimizer.step();
//
// docs/ddp.md describes the guarantees.
#ifndef MEDFUSION_DDP_DDP_WRAPPER_H_
#define MEDFUSION_DDP_DDP_WRAPPER_H_

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "medfusion/ddp/options.h"
#include "medfusion/ddp/output_tensors.h"
#include "medfusion/ddp/replica.h"

namespace medfusion {

// What a DDPWrapper<Net> holds: a shared_ptr for a module class, the holder for a TORCH_MODULE.
template <typename Net, typename = void>
struct WrappedModule {
  using Impl = Net;
  using Handle = std::shared_ptr<Net>;
  static std::shared_ptr<Impl> Pointer(const Handle& handle) { return handle; }
};
template <typename Net>
struct WrappedModule<Net, std::void_t<typename Net::ContainedType>> {
  using Impl = typename Net::ContainedType;
  using Handle = Net;
  static std::shared_ptr<Impl> Pointer(const Handle& handle) { return handle.ptr(); }
};

// DDPWrapper<torch::nn::Sequential>, DDPWrapper<MyNetImpl>; the type follows from the argument. One
// thread uses it. Move the module to its device and dtype before wrapping it. The wrapper shares
// the module; keep the wrapper while you train. PyTorch: torch.nn.parallel.DistributedDataParallel.
template <typename Net>
class DDPWrapper {
 public:
  using Handle = typename WrappedModule<Net>::Handle;
  using Impl = typename WrappedModule<Net>::Impl;

  // Collective. Compares options and the parameters' and buffers' names, dtypes, shapes and
  // strides over the ranks, and makes all values rank 0's. Throws std::invalid_argument on all
  // ranks, naming the parameter and each rank's value, when they differ; when nothing requires
  // grad; when a tensor is on a device that the group does not serve.
  explicit DDPWrapper(Handle module, DDPOptions options = {})
      : module_(std::move(module)),
        impl_(WrappedModule<Net>::Pointer(module_)),
        replica_(std::make_unique<Replica>(impl_, std::move(options))) {}

  // So that a wrapper reads like the module's holder: model->forward(x).
  DDPWrapper* operator->() { return this; }
  const DDPWrapper* operator->() const { return this; }

  // The module's forward, with its arguments and its result, whatever they are. In training mode
  // with gradients enabled it is collective when there are buffers to broadcast, batch norms to
  // join, or a Join. Throws GradientError when the last backward left parameters without gradient,
  // or failed on some ranks (collective then: the other ranks throw the same from backward or their
  // next forward).
  template <typename... Args>
  decltype(auto) forward(Args&&... args) {
    const auto scope = replica_->BeginForward();
    using Result = decltype(impl_->forward(std::forward<Args>(args)...));
    if constexpr (std::is_void_v<Result>) {
      impl_->forward(std::forward<Args>(args)...);
    } else {
      decltype(auto) result = impl_->forward(std::forward<Args>(args)...);
      if constexpr (HasOutputTensors<std::decay_t<Result>>::value) {
        std::vector<at::Tensor> outputs;
        OutputTensors<std::decay_t<Result>>::Collect(result, outputs);
        replica_->EndForward(outputs);
      }
      return result;
    }
  }

  // The wrapped module, as it was given.
  const Handle& module() const { return module_; }

  // For optimizers: each parameter once, also those that are registered under several names, which
  // torch::nn::Module::parameters() repeats.
  std::vector<at::Tensor> parameters() const { return replica_->parameters(); }
  // As of the module: its names, without a prefix.
  auto named_parameters() const { return impl_->named_parameters(); }
  std::vector<at::Tensor> buffers() const { return impl_->buffers(); }
  auto named_buffers() const { return impl_->named_buffers(); }
  void train(bool on = true) { impl_->train(on); }
  void eval() { impl_->eval(); }
  bool is_training() const { return impl_->is_training(); }
  void zero_grad(bool set_to_none = true) { impl_->zero_grad(set_to_none); }

  // { auto guard = model->no_sync(); loss.backward(); }   See NoSyncGuard.
  [[nodiscard]] NoSyncGuard no_sync() { return NoSyncGuard(replica_->reducer()); }

  const std::shared_ptr<ProcessGroup>& group() const { return replica_->group(); }
  // For Join and for tests.
  Replica& replica() { return *replica_; }

 private:
  Handle module_;
  std::shared_ptr<Impl> impl_;
  std::unique_ptr<Replica> replica_;
};

template <typename Module>
DDPWrapper(std::shared_ptr<Module>, DDPOptions = {}) -> DDPWrapper<Module>;
template <typename Holder, typename = typename Holder::ContainedType>
DDPWrapper(Holder, DDPOptions = {}) -> DDPWrapper<Holder>;

}  // namespace medfusion

#endif  // MEDFUSION_DDP_DDP_WRAPPER_H_
