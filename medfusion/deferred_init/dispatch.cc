// Note [Tensors without memory yet]: the fallback that sees every operator.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/List.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <absl/strings/str_cat.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

#include "medfusion/deferred_init/recording.h"
#include "medfusion/deferred_init/replay.h"

namespace medfusion {
namespace {

using c10::IValue;
using torch::jit::Stack;

// As large as a torch::tensor(std::vector) may be inside DeferInit.
constexpr int64_t kSmallNumel = 1 << 17;

constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kDeferredKey);

template <typename Visit>
void VisitTensors(const IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const IValue& element : value.toListRef()) VisitTensors(element, visit);
  }
}

bool Writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Changes a tensor's shape or flags, which are known, and no values.
bool ChangesNoValues(const c10::OperatorHandle& op) {
  static const std::set<std::string_view> kNames = {"aten::set_data", "aten::requires_grad_",
                                                    "aten::retain_grad"};
  const std::string& name = op.schema().name();
  return kNames.count(name) > 0 || (op.hasTag(at::Tag::inplace_view) && name != "aten::resize_");
}

// What may still be recorded after DeferInit returned: Module::to and Module::clone.
bool AllowedLater(const std::string& name) {
  static const std::set<std::string_view> kNames = {"aten::to", "aten::_to_copy", "aten::clone",
                                                    "aten::contiguous", "aten::alias"};
  return kNames.count(name) > 0;
}

std::string Advice(const std::string& name, const char* problem) {
  return absl::StrCat(name, " ", problem,
                      ". A tensor made inside DeferInit has a shape but no values until "
                      "medfusion::Materialize or FSDPWrapper gives it some");
}

// One call of an operator, as the fallback got it.
struct Call {
  const c10::OperatorHandle& op;
  c10::DispatchKeySet keys;
  Stack* stack;
  size_t begin;  // of the arguments on the stack

  Call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack)
      : op(op), keys(keys), stack(stack), begin(stack->size() - arguments().size()) {}

  const std::string& name() const { return op.schema().name(); }
  const std::vector<c10::Argument>& arguments() const { return op.schema().arguments(); }
  IValue& argument(size_t i) const { return (*stack)[begin + i]; }
  int generator() const {
    for (size_t i = 0; i < arguments().size(); ++i) {
      if (arguments()[i].name() == "generator") return static_cast<int>(i);
    }
    return -1;
  }
};

struct Tensors {
  int count = 0;
  int written = 0;
  std::shared_ptr<Recording> recording;  // of those without memory
};

Tensors LookAtTensors(const Call& call) {
  Tensors tensors;
  for (size_t i = 0; i < call.arguments().size(); ++i) {
    const bool writes = Writes(call.arguments()[i]) && !ChangesNoValues(call.op);
    VisitTensors(call.argument(i), [&](const at::Tensor& tensor) {
      ++tensors.count;
      tensors.written += writes ? 1 : 0;
      const DeferredStorage* storage = DeferredStorageOf(tensor);
      if (storage == nullptr) return;
      if (tensors.recording != nullptr && tensors.recording != storage->recording) {
        throw std::logic_error(
            Advice(call.name(), "uses tensors of two DeferInit calls; build both in one"));
      }
      tensors.recording = storage->recording;
    });
  }
  return tensors;
}

void RunUnrecorded(const Call& call) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kDeferredKey);
  call.op.callBoxed(call.stack);
}

// The operator is made of others: record those.
void StepInside(const Call& call) {
  const c10::impl::IncludeDispatchKeyGuard guard(kDeferredKey);
  call.op.redispatchBoxed(call.keys & kBelow, call.stack);
}

at::Generator GeneratorOf(const Call& call) {
  const IValue& value = call.argument(call.generator());
  return value.isNone() ? at::detail::getDefaultCPUGenerator() : value.toGenerator();
}

// Fills a tensor that has memory: draws what it would have drawn, after all that is recorded.
void DrawNow(const Call& call, Recording& recording) {
  const RandomStreams::Place place = recording.random().Enter(GeneratorOf(call), -1);
  CatchUp(recording, place);
  const at::Generator generator = recording.random().At(place);
  call.argument(call.generator()) = generator;
  RunUnrecorded(call);
  recording.random().Passed(place, generator);
}

// torch::tensor(number) costs nothing and may be meant as an index; torch::tensor(values) allocates
// on the CPU, by name, and writes around the dispatcher.
bool IsForHostValues(const Call& call) {
  if (call.name() == "aten::scalar_tensor") {
    IValue& device = call.argument(3);
    if (device.isDevice() && device.toDevice().is_meta()) device = c10::Device(c10::kCPU);
    return true;
  }
  if (call.name() != "aten::empty" || call.op.schema().overload_name() != "memory_format") {
    return false;
  }
  const IValue& device = call.argument(3);
  if (!device.isDevice() || !device.toDevice().is_cpu()) return false;
  int64_t numel = 1;
  for (int64_t size : call.argument(0).toDimVector()) numel *= size;
  return numel <= kSmallNumel;
}

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

// The operator's results, with shapes and without values; nullopt when it consists of others that
// have to be seen one by one.
std::optional<Stack> Shapes(const Call& call, bool has_tensors) {
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

IValue Freeze(const IValue& value) {
  if (value.isTensor()) {
    if (!value.toTensor().defined()) return value;
    return IValue::make_capsule(Describe(value.toTensor()));
  }
  if (!value.isTensorList() && !value.isOptionalTensorList()) return value;
  auto list = c10::make_intrusive<TensorRefList>();
  list->optional = value.isOptionalTensorList();
  for (const IValue& element : value.toListRef()) list->elements.push_back(Freeze(element));
  return IValue::make_capsule(list);
}

// The arguments, before the operator ran.
RecordedOperator Written(const Call& call, const Tensors& tensors) {
  RecordedOperator recorded{call.op, {}, {}, {}, {}, {}, false};
  for (size_t i = 0; i < call.arguments().size(); ++i) {
    const c10::Argument& argument = call.arguments()[i];
    recorded.arguments.push_back(Freeze(call.argument(i)));
    VisitTensors(call.argument(i), [&](const at::Tensor& tensor) {
      const DeferredStorage* storage = DeferredStorageOf(tensor);
      if (storage == nullptr) {
        if (!Writes(argument)) return;
        throw std::logic_error(Advice(call.name(), "would write them to a tensor with memory"));
      }
      recorded.uses.push_back(storage->number);
      if (Writes(argument)) recorded.writes.push_back(storage->number);
    });
  }
  recorded.fills = call.generator() >= 0 && tensors.count == 1 && tensors.written == 1;
  return recorded;
}

// Enters new results into the recording. True when there are some.
bool AdoptResults(Recording& recording, const Stack& results, RecordedOperator& recorded) {
  std::map<const c10::StorageImpl*, c10::intrusive_ptr<DeferredStorage>> storages;
  for (const IValue& result : results) {
    VisitTensors(result, [&](const at::Tensor& tensor) {
      if (DeferredStorageOf(tensor) != nullptr || !tensor.is_meta()) {
        recorded.results.emplace_back();
        return;
      }
      if (!tensor.has_storage()) {
        throw std::logic_error(
            Advice(recorded.op.schema().name(), "gives a tensor that is not dense"));
      }
      auto& storage = storages[tensor.storage().unsafeGetStorageImpl()];
      if (storage == nullptr) {
        storage = recording.NewStorage(static_cast<int64_t>(tensor.storage().nbytes()));
        recorded.writes.push_back(storage->number);
      }
      recording.Adopt(tensor, storage);
      recorded.results.push_back(Describe(tensor));
    });
  }
  return !storages.empty();
}

// A recorded factory keeps the dtype that was the default then.
void PinDtype(const Call& call, const Stack& results, RecordedOperator& recorded) {
  for (size_t i = 0; i < call.arguments().size(); ++i) {
    if (call.arguments()[i].name() != "dtype" || !recorded.arguments[i].isNone()) continue;
    if (results.size() == 1 && results[0].isTensor()) {
      recorded.arguments[i] = static_cast<int64_t>(results[0].toTensor().scalar_type());
    }
  }
}

void RequireNotTooLate(const Call& call, const Tensors& tensors) {
  if (CurrentRecording() != nullptr) return;
  if (tensors.written == 0 && AllowedLater(call.name())) return;
  throw std::logic_error(Advice(
      call.name(), "comes too late to be recorded, since DeferInit has returned; do it inside"));
}

void Record(const Call& call, const Tensors& tensors, Recording& recording) {
  std::optional<Stack> results;
  {
    const c10::impl::ExcludeDispatchKeyGuard guard(kDeferredKey);
    RecordedOperator recorded = Written(call, tensors);
    results = Shapes(call, tensors.count > 0);
    if (results) {
      const bool makes = AdoptResults(recording, *results, recorded);
      if (tensors.count == 0) PinDtype(call, *results, recorded);
      if (makes || tensors.written > 0) {
        RequireNotTooLate(call, tensors);
        if (call.generator() >= 0) {
          recorded.random = recording.random().Enter(GeneratorOf(call), recording.size());
        }
        recording.Add(std::move(recorded));
      }
    }
  }
  if (!results) {
    StepInside(call);
    return;
  }
  call.stack->resize(call.begin);
  call.stack->insert(call.stack->end(), results->begin(), results->end());
}

void RequireNoValuesNeeded(const Call& call) {
  if (call.op.hasTag(at::Tag::data_dependent_output) ||
      call.op.hasTag(at::Tag::dynamic_output_shape)) {
    throw std::logic_error(Advice(
        call.name(),
        "needs values, and none are computed while a module is recorded; compute what decides "
        "about the module before DeferInit, or from shapes"));
  }
}

bool ReturnsTensors(const Call& call) {
  for (const c10::Argument& result : call.op.schema().returns()) {
    if (result.type()->isSubtypeOf(*c10::TensorType::get()) ||
        result.type()->isSubtypeOf(*c10::ListType::ofTensors())) {
      return true;
    }
  }
  return false;
}

void RecordOrRun(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const Call call(op, keys, stack);
  const Tensors tensors = LookAtTensors(call);
  const bool recording_now = CurrentRecording() != nullptr;
  const bool random = call.generator() >= 0 || call.op.hasTag(at::Tag::nondeterministic_seeded);
  if (ChangesNoValues(op)) return RunUnrecorded(call);
  if (tensors.recording == nullptr) {
    const bool factory = tensors.count == 0 && ReturnsTensors(call) && !IsForHostValues(call);
    if (!recording_now || (!factory && !random)) return RunUnrecorded(call);
    if (call.generator() < 0 && random) return StepInside(call);
    if (!factory && tensors.count > 0) return DrawNow(call, *CurrentRecording());
    if (!factory) return RunUnrecorded(call);
    return Record(call, tensors, *CurrentRecording());
  }
  if (recording_now && CurrentRecording() != tensors.recording) {
    throw std::logic_error(
        Advice(call.name(), "uses a tensor of an earlier DeferInit; build both in one"));
  }
  RequireNoValuesNeeded(call);
  if (random && call.generator() < 0) return StepInside(call);
  Record(call, tensors, *tensors.recording);
}

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&RecordOrRun>());
}

}  // namespace
}  // namespace medfusion
