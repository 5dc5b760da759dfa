// Note [Tensors without memory yet]: the fallback that sees every operator.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/enum_tag.h>
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

#include "medfusion/deferred_init/operator_call.h"
#include "medfusion/deferred_init/recording.h"
#include "medfusion/deferred_init/replay.h"

namespace medfusion {
namespace {

using c10::IValue;
using torch::jit::Stack;

// As large as a torch::tensor(std::vector) may be inside DeferInit.
constexpr int64_t kSmallNumel = 1 << 17;

constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kDeferredKey);

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

struct Tensors {
  int count = 0;
  int written = 0;
  std::shared_ptr<Recording> recording;  // of those without memory
};

Tensors LookAtTensors(const OperatorCall& call) {
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

void RunUnrecorded(const OperatorCall& call) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kDeferredKey);
  call.op.callBoxed(call.stack);
}

// The operator is made of others: record those.
void StepInside(const OperatorCall& call) {
  const c10::impl::IncludeDispatchKeyGuard guard(kDeferredKey);
  call.op.redispatchBoxed(call.keys & kBelow, call.stack);
}

at::Generator GeneratorOf(const OperatorCall& call) {
  const IValue& value = call.argument(call.generator());
  return value.isNone() ? at::detail::getDefaultCPUGenerator() : value.toGenerator();
}

// Fills a tensor that has memory: draws what it would have drawn, after all that is recorded.
void DrawNow(const OperatorCall& call, Recording& recording) {
  const RandomStreams::Place place = recording.random().Enter(GeneratorOf(call), -1);
  CatchUp(recording, place);
  const at::Generator generator = recording.random().At(place);
  call.argument(call.generator()) = generator;
  RunUnrecorded(call);
  recording.random().Passed(place, generator);
}

// torch::tensor(number) costs nothing and may be meant as an index; torch::tensor(values) allocates
// on the CPU, by name, and writes around the dispatcher.
bool IsForHostValues(const OperatorCall& call) {
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
RecordedOperator Written(const OperatorCall& call, const Tensors& tensors) {
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
void PinDtype(const OperatorCall& call, const Stack& results, RecordedOperator& recorded) {
  for (size_t i = 0; i < call.arguments().size(); ++i) {
    if (call.arguments()[i].name() != "dtype" || !recorded.arguments[i].isNone()) continue;
    if (results.size() == 1 && results[0].isTensor()) {
      recorded.arguments[i] = static_cast<int64_t>(results[0].toTensor().scalar_type());
    }
  }
}

void RequireNotTooLate(const OperatorCall& call, const Tensors& tensors) {
  if (CurrentRecording() != nullptr) return;
  if (tensors.written == 0 && AllowedLater(call.name())) return;
  throw std::logic_error(Advice(
      call.name(), "comes too late to be recorded, since DeferInit has returned; do it inside"));
}

void Record(const OperatorCall& call, const Tensors& tensors, Recording& recording) {
  std::optional<Stack> results;
  {
    const c10::impl::ExcludeDispatchKeyGuard guard(kDeferredKey);
    RecordedOperator recorded = Written(call, tensors);
    results = ComputeShapes(call, tensors.count > 0);
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

void RequireNoValuesNeeded(const OperatorCall& call) {
  if (call.op.hasTag(at::Tag::data_dependent_output) ||
      call.op.hasTag(at::Tag::dynamic_output_shape)) {
    throw std::logic_error(Advice(
        call.name(),
        "needs values, and none are computed while a module is recorded; compute what decides "
        "about the module before DeferInit, or from shapes"));
  }
}

bool ReturnsTensors(const OperatorCall& call) {
  for (const c10::Argument& result : call.op.schema().returns()) {
    if (result.type()->isSubtypeOf(*c10::TensorType::get()) ||
        result.type()->isSubtypeOf(*c10::ListType::ofTensors())) {
      return true;
    }
  }
  return false;
}

void RecordOrRun(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const OperatorCall call(op, keys, stack);
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
