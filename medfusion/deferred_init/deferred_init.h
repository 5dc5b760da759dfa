// Builds a module without its memory; its values come later, whole or part by part.
//
//   auto net = medfusion::DeferInit([] { return std::make_shared<Net>(); });   // any module
//   medfusion::FSDPWrapper model(net, options);   // one unit after another, sharded at once
//
// The module is not changed: what its constructor computes is recorded, and run when the values are
// needed. They are bit by bit those that the constructor gives with the same seed.
// docs/deferred_init.md describes the limits. Python's counterparts: torch.device("meta"), and
// torchdistX's deferred_init.
#ifndef MEDFUSION_DEFERRED_INIT_DEFERRED_INIT_H_
#define MEDFUSION_DEFERRED_INIT_DEFERRED_INIT_H_

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <memory>
#include <span>
#include <vector>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace medfusion {

// Records the tensor operators of this thread while it lives. Prefer DeferInit. Scopes nest; the
// inner ones belong to the outermost. When it ends, every generator that was drawn from has a new
// seed, derived from its state before: numbers drawn later are the same in every run, but not those
// that they would be after an eager constructor.
class DeferInitScope {
 public:
  DeferInitScope();
  ~DeferInitScope();
  DeferInitScope(const DeferInitScope&) = delete;
  DeferInitScope& operator=(const DeferInitScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

namespace internal {
// Throws std::logic_error when that is what the error is about.
void ExplainMissingMemory(const c10::Error& error);
}  // namespace internal

// make()'s result, whose tensors have shapes, dtypes and names and no memory; their device reads
// meta. Throws std::logic_error, naming the operator, when one of them needs values (item, equal)
// or when memory is asked for (data_ptr). After it, tensors may be converted (Module::to) and
// cloned, but not changed.
template <typename Make>
auto DeferInit(Make&& make) {
  const DeferInitScope scope;
  try {
    return make();
  } catch (const c10::Error& error) {
    internal::ExplainMissingMemory(error);
    throw;
  }
}

// True for a tensor that waits for its values.
bool IsDeferred(const at::Tensor& tensor);

// Gives all parameters and buffers of the module their values, in place. Modules, optimizers and
// tied parameters that hold them see them. Does nothing to tensors that have values. Not
// collective.
void Materialize(const torch::nn::Module& module);
void Materialize(std::span<const at::Tensor> tensors);

// The values of a deferred tensor, which stays deferred; they can be computed again. Memory: the
// result, and while it runs what it is computed from.
at::Tensor ComputeDeferred(const at::Tensor& tensor);

// `tensor`, deferred or on the meta device, becomes one over `value`'s memory, in place; it keeps
// whether it requires a gradient. Sizes must agree, else std::invalid_argument.
void GiveValue(const at::Tensor& tensor, const at::Tensor& value);

}  // namespace medfusion

#endif  // MEDFUSION_DEFERRED_INIT_DEFERRED_INIT_H_
