// One call of an operator under the recording fallback, and the shapes of what it gives.
#ifndef MEDFUSION_DEFERRED_INIT_OPERATOR_CALL_H_
#define MEDFUSION_DEFERRED_INIT_OPERATOR_CALL_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

namespace medfusion {

// As the fallback got it.
struct OperatorCall {
  const c10::OperatorHandle& op;
  c10::DispatchKeySet keys;
  torch::jit::Stack* stack;
  size_t begin;  // of the arguments on the stack

  OperatorCall(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack)
      : op(op), keys(keys), stack(stack), begin(stack->size() - arguments().size()) {}

  const std::string& name() const { return op.schema().name(); }
  const std::vector<c10::Argument>& arguments() const { return op.schema().arguments(); }
  c10::IValue& argument(size_t i) const { return (*stack)[begin + i]; }
  // The place of the random generator among the arguments; -1: the operator draws nothing, or has
  // no such argument.
  int generator() const {
    for (size_t i = 0; i < arguments().size(); ++i) {
      if (arguments()[i].name() == "generator") return static_cast<int>(i);
    }
    return -1;
  }
};

// Calls `visit` for the tensors in an argument or result.
template <typename Visit>
void VisitTensors(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef()) VisitTensors(element, visit);
  }
}

// The call's results, with shapes and without values, new ones on the meta device; nullopt when the
// operator consists of others that have to be seen one by one. `has_tensors`: among the arguments.
std::optional<torch::jit::Stack> ComputeShapes(const OperatorCall& call, bool has_tensors);

}  // namespace medfusion

#endif  // MEDFUSION_DEFERRED_INIT_OPERATOR_CALL_H_
