// A region with its function and arguments; the only part that depends on their types.
#ifndef MEDFUSION_RECOMPUTE_CALL_H_
#define MEDFUSION_RECOMPUTE_CALL_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "medfusion/recompute/argument_tensors.h"
#include "medfusion/recompute/region.h"

namespace medfusion::recompute_internal {

// How a kept copy of an argument is passed: as the original was.
template <typename Argument, typename T = std::decay_t<Argument>>
using Passed = std::conditional_t<
    std::is_lvalue_reference_v<Argument>,
    std::conditional_t<std::is_const_v<std::remove_reference_t<Argument>>, const T&, T&>, T&&>;

template <typename Function, typename... Arguments>
class Call final : public Region {
 public:
  template <typename F>
  Call(const RecomputeOptions& options, F&& function, const Arguments&... arguments)
      : Region(options), function_(std::forward<F>(function)), arguments_(arguments...) {
    VisitTensors(arguments_, [this](at::Tensor& tensor) {
      KeepInput(tensor);
      tensor.reset();
    });
  }

  Function& function() { return function_; }

 private:
  void RunAgain() override {
    Kept arguments = arguments_;
    size_t next = 0;
    VisitTensors(arguments, [&](at::Tensor& tensor) { tensor = Input(next++); });
    Invoke(arguments, std::index_sequence_for<Arguments...>());
  }

  using Kept = std::tuple<std::decay_t<Arguments>...>;

  template <size_t... index>
  void Invoke(Kept& arguments, std::index_sequence<index...>) {
    static_cast<void>(
        std::invoke(function_, static_cast<Passed<Arguments>>(std::get<index>(arguments))...));
  }

  Function function_;
  Kept arguments_;  // their tensors are kept by Region
};

}  // namespace medfusion::recompute_internal

#endif  // MEDFUSION_RECOMPUTE_CALL_H_
