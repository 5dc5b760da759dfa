#include "medfusion/deferred_init/operator_call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <utility>

namespace medfusion {
namespace {

using c10::IValue;
using torch::jit::Stack;

// Stands in for one argument while shapes are computed.
IValue OnMeta(const c10::Argument& argument, const IValue& value, bool has_tensors) {
  const auto meta = [](const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.is_meta() || tensor.dim() == 0) return tensor;
    return at::empty_strided(tensor.sizes(), tensor.strides(),
                             tensor.options().device(c10::kMeta).pinned_memory(false));
  };
  if (value.isTensor()) return meta(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(meta(tensor));
    return list;
  }
  if (argument.name() == "device" && (value.isDevice() || (value.isNone() && !has_tensors))) {
    return c10::Device(c10::kMeta);
  }
  if (argument.name() == "generator" || argument.name() == "pin_memory") return {};
  return value;
}

// Runs an operator that LibTorch cannot run on meta tensors on zeros, for the shapes.
class OnZeros {
 public:
  IValue Replace(const c10::Argument& argument, const IValue& value) {
    if (argument.name() == "generator") return at::detail::createCPUGenerator();
    if (value.isDevice()) return c10::Device(c10::kCPU);
    if (value.isTensor()) return Zeros(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(Zeros(tensor));
    return list;
  }
  // The argument for the tensor that stood in for it, a meta tensor for a new one.
  at::Tensor Return(const at::Tensor& result) const {
    for (const auto& [zeros, original] : replaced_) {
      if (zeros.is_same(result)) return original;
    }
    return at::empty_strided(result.sizes(), result.strides(), result.options().device(c10::kMeta));
  }

 private:
  at::Tensor Zeros(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_meta()) return tensor;
    at::Tensor zeros =
        at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU));
    zeros.zero_();
    replaced_.emplace_back(zeros, tensor);
    return zeros;
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> replaced_;
};

}  // namespace

std::optional<Stack> ComputeShapes(const OperatorCall& call, bool has_tensors) {
  Stack shapes;
  for (size_t i = 0; i < call.arguments().size(); ++i) {
    shapes.push_back(OnMeta(call.arguments()[i], call.argument(i), has_tensors));
  }
  try {
    call.op.callBoxed(&shapes);
    return shapes;
  } catch (const c10::NotImplementedError&) {
    if (!call.op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
  }
  OnZeros zeros;
  shapes.clear();
  for (size_t i = 0; i < call.arguments().size(); ++i) {
    shapes.push_back(zeros.Replace(call.arguments()[i], call.argument(i)));
  }
  call.op.callBoxed(&shapes);
  for (IValue& result : shapes) {
    if (result.isTensor()) {
      result = zeros.Return(result.toTensor());
    } else if (result.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : result.toTensorVector()) list.push_back(zeros.Return(tensor));
      result = list;
    }
  }
  return shapes;
}

}  // namespace medfusion
