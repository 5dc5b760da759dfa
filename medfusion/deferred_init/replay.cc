#include "medfusion/deferred_init/replay.h"

#include <ATen/core/List.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

namespace medfusion {
namespace {

class Replayer {
 public:
  explicit Replayer(Recording& recording) : recording_(recording) {}

  // `ops` sorted. Of all storages only `kept` are left.
  void Run(const std::vector<int>& ops, const std::set<int>& kept);
  at::Tensor Thaw(const TensorRef& ref) const;

 private:
  void RunOne(const RecordedOperator& op, bool into_scratch);
  c10::IValue Argument(const RecordedOperator& op, size_t index, bool into_scratch) const;
  c10::IValue Thaw(const TensorRefList& list) const;
  void Bind(const RecordedOperator& op, const torch::jit::Stack& results);
  void Bind(const TensorRef& ref, const at::Tensor& value);

  Recording& recording_;
  std::map<int, c10::Storage> storages_;
};

void Replayer::Run(const std::vector<int>& ops, const std::set<int>& kept) {
  std::map<int, int> last_use;
  for (int index : ops) {
    for (int storage : recording_.op(index).uses) last_use[storage] = index;
    for (int storage : recording_.op(index).writes) last_use[storage] = index;
  }
  std::map<int, std::vector<int>> done_after;
  for (const auto& [storage, last] : last_use) {
    if (kept.count(storage) == 0) done_after[last].push_back(storage);
  }
  for (int index : ops) {
    const RecordedOperator& op = recording_.op(index);
    // A draw that is run only for the state after it may stand alone, without the tensor it fills.
    RunOne(op, op.fills && ops.size() == 1 && kept.empty());
    for (int storage : done_after[index]) storages_.erase(storage);
  }
}

void Replayer::RunOne(const RecordedOperator& op, bool into_scratch) {
  at::Generator generator;
  if (op.random.stream >= 0) {
    CatchUp(recording_, op.random);
    generator = recording_.random().At(op.random);
  }
  torch::jit::Stack stack;
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    const bool draws = op.op.schema().arguments()[i].name() == "generator";
    stack.push_back(draws && generator.defined() ? c10::IValue(generator)
                                                 : Argument(op, i, into_scratch));
  }
  op.op.callBoxed(&stack);
  if (generator.defined()) recording_.random().Passed(op.random, generator);
  if (!into_scratch) Bind(op, stack);
}

c10::IValue Replayer::Argument(const RecordedOperator& op, size_t index, bool into_scratch) const {
  const c10::IValue& value = op.arguments[index];
  if (value.isCapsule()) {
    const auto holder = value.toCapsule();
    if (const auto* ref = dynamic_cast<const TensorRef*>(holder.get())) {
      if (!into_scratch) return Thaw(*ref);
      return at::empty_strided(ref->sizes, ref->strides, at::TensorOptions(ref->dtype));
    }
    if (const auto* list = dynamic_cast<const TensorRefList*>(holder.get())) return Thaw(*list);
  }
  // Taken from a tensor that had no memory, as with weight.options().
  if (value.isDevice() && value.toDevice().is_meta()) return c10::Device(c10::kCPU);
  return value;
}

at::Tensor Replayer::Thaw(const TensorRef& ref) const {
  if (ref.storage < 0) {
    if (ref.version >= 0 && ref.value._version() != ref.version) {
      throw std::logic_error(
          "a tensor that initial values are computed from was changed after DeferInit recorded "
          "its use; leave it as it was until the module is materialised");
    }
    return ref.value;
  }
  const c10::Storage& storage = storages_.at(ref.storage);
  at::Tensor tensor = at::empty({0}, at::TensorOptions(ref.dtype).device(storage.device()));
  return tensor.set_(storage, ref.offset, ref.sizes, ref.strides);
}

c10::IValue Replayer::Thaw(const TensorRefList& list) const {
  const auto element = [&](const c10::IValue& value) {
    return Thaw(dynamic_cast<const TensorRef&>(*value.toCapsule()));
  };
  if (!list.optional) {
    c10::List<at::Tensor> tensors;
    for (const c10::IValue& value : list.elements) tensors.push_back(element(value));
    return tensors;
  }
  c10::List<std::optional<at::Tensor>> tensors;
  for (const c10::IValue& value : list.elements) {
    tensors.push_back(value.isNone() ? std::nullopt : std::make_optional(element(value)));
  }
  return tensors;
}

void Replayer::Bind(const RecordedOperator& op, const torch::jit::Stack& results) {
  size_t place = 0;
  const auto bind_next = [&](const at::Tensor& value) {
    const TensorRefPtr& ref = op.results.at(place++);
    if (ref != nullptr) Bind(*ref, value);
  };
  for (const c10::IValue& result : results) {
    if (result.isTensor()) {
      bind_next(result.toTensor());
    } else if (result.isTensorList()) {
      for (const at::Tensor& value : result.toTensorVector()) bind_next(value);
    }
  }
}

void Replayer::Bind(const TensorRef& ref, const at::Tensor& value) {
  if (storages_.count(ref.storage) > 0) return;  // of several results in one storage
  if (value.sizes() == at::IntArrayRef(ref.sizes) &&
      value.strides() == at::IntArrayRef(ref.strides) && value.storage_offset() == ref.offset) {
    storages_.emplace(ref.storage, value.storage());
    return;
  }
  // The meta kernel laid it out in another way.
  at::Tensor copy = at::empty_strided(ref.sizes, ref.strides, value.options());
  copy.copy_(value);
  storages_.emplace(ref.storage, copy.storage());
}

// What an operator sees must not depend on the caller's modes.
struct PlainModes {
  c10::InferenceMode no_inference{false};
  c10::AutoGradMode no_grad{false};
  c10::impl::ExcludeDispatchKeyGuard not_recorded{kDeferredKey};
};

}  // namespace

void CatchUp(Recording& recording, RandomStreams::Place place) {
  const PlainModes modes;
  for (int index; (index = recording.random().Missing(place)) >= 0;) {
    Replayer(recording).Run(recording.OperatorsBefore(index), {});
  }
}

std::vector<at::Tensor> Replay(std::span<const at::Tensor> tensors) {
  const PlainModes modes;
  std::vector<at::Tensor> values;
  if (tensors.empty()) return values;
  Recording& recording = *DeferredStorageOf(tensors.front())->recording;
  std::set<int> wanted;
  for (const at::Tensor& tensor : tensors) wanted.insert(DeferredStorageOf(tensor)->number);
  Replayer replayer(recording);
  replayer.Run(recording.OperatorsFor({wanted.begin(), wanted.end()}), wanted);
  for (const at::Tensor& tensor : tensors) values.push_back(replayer.Thaw(*Describe(tensor)));
  return values;
}

}  // namespace medfusion
