// Recomputation (activation checkpointing): backward runs a part of forward again instead of
// keeping what that part computed. Memory for time; losses and gradients stay bit for bit the same.
//
//   auto y = medfusion::Recompute([&](at::Tensor x) { return block->forward(x); }, x);
//
// Behaves as PyTorch's torch.utils.checkpoint(use_reentrant=False): one graph, each parameter's
// gradient arrives once, so DDPWrapper, FSDPWrapper and gradient hooks notice nothing.
#ifndef MEDFUSION_RECOMPUTE_RECOMPUTE_H_
#define MEDFUSION_RECOMPUTE_RECOMPUTE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "medfusion/recompute/argument_tensors.h"
#include "medfusion/recompute/call.h"
#include "medfusion/recompute/options.h"

namespace medfusion {

// Calls `function(arguments...)` and returns what it returns. The tensors that autograd saves
// inside are dropped; when backward needs the first of them, the function runs again, with the same
// arguments, random numbers and autocast settings, and only until the last needed tensor is there.
//
// The function and the arguments are copied (tensors share their memory) and kept until backward
// has passed. What the function refers to must live as long: `block` above, captured by reference,
// does when it belongs to the model. Tensors are best passed as arguments: those are dropped
// too when regions nest, captured ones are not. ArgumentTensors<T> tells the tensors in a type of
// your own.
//
// The function must compute the same each time: an argument that was changed in place meanwhile and
// a second run that saves other shapes, dtypes or fewer tensors are errors in backward
// (c10::Error). Side effects happen twice: BatchNorm moves its running statistics in both runs, as
// in PyTorch. An exception in the second run passes through backward(); the graph, generators and
// settings are as before.
//
// Without grad mode it is a plain call. Regions nest, may share parameters, and allow retain_graph
// and create_graph: each backward runs the function again. Threads: a region belongs to no thread;
// CPU and device threads of one backward take turns. Not collective.
template <typename Function, typename... Arguments>
std::invoke_result_t<std::decay_t<Function>&, Arguments...> Recompute(
    const RecomputeOptions& options, Function&& function, Arguments&&... arguments) {
  using Call = recompute_internal::Call<std::decay_t<Function>, Arguments...>;
  static_assert((std::is_copy_constructible_v<std::decay_t<Arguments>> && ...),
                "Recompute keeps a copy of each argument for backward; capture what cannot be "
                "copied by reference, or pass it as a shared_ptr");
  if (!c10::GradMode::is_enabled()) {
    std::decay_t<Function> once(std::forward<Function>(function));
    return std::invoke(once, std::forward<Arguments>(arguments)...);
  }
  const auto call = std::make_shared<Call>(options, std::forward<Function>(function), arguments...);
  const recompute_internal::Region::Forward forward(call);
  return std::invoke(call->function(), std::forward<Arguments>(arguments)...);
}

// With the defaults.
template <typename Function, typename... Arguments,
          typename = std::enable_if_t<!std::is_same_v<std::decay_t<Function>, RecomputeOptions>>>
std::invoke_result_t<std::decay_t<Function>&, Arguments...> Recompute(Function&& function,
                                                                      Arguments&&... arguments) {
  return Recompute(RecomputeOptions(), std::forward<Function>(function),
                   std::forward<Arguments>(arguments)...);
}

}  // namespace medfusion

#endif  // MEDFUSION_RECOMPUTE_RECOMPUTE_H_
