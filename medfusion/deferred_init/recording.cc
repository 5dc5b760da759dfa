#include "medfusion/deferred_init/recording.h"

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <map>
#include <stdexcept>

namespace medfusion {
namespace {

constexpr int64_t kSnapshotBytes = 1 << 20;

thread_local std::shared_ptr<Recording> current_recording;

}  // namespace

DeferredStorage::DeferredStorage(std::shared_ptr<Recording> recording, int number, int64_t bytes)
    : StorageImpl(use_byte_size_t(), bytes, c10::DataPtr(nullptr, c10::Device(c10::kMeta)),
                  c10::GetAllocator(c10::kMeta), /*resizable=*/true),
      recording(std::move(recording)),
      number(number) {}

DeferredStorage* DeferredStorageOf(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kDeferredKey) || !tensor.has_storage()) {
    return nullptr;
  }
  return dynamic_cast<DeferredStorage*>(tensor.storage().unsafeGetStorageImpl());
}

TensorRefPtr Describe(const at::Tensor& tensor) {
  auto ref = c10::make_intrusive<TensorRef>();
  if (const DeferredStorage* storage = DeferredStorageOf(tensor)) {
    if (tensor.is_conj() || tensor.is_neg()) {
      throw std::logic_error("DeferInit does not record lazily conjugated or negated tensors");
    }
    ref->storage = storage->number;
    ref->dtype = tensor.scalar_type();
    ref->sizes = tensor.sizes().vec();
    ref->strides = tensor.strides().vec();
    ref->offset = tensor.storage_offset();
    return ref;
  }
  ref->value = tensor;
  const bool wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (wrapped_number || tensor.is_inference()) return ref;
  // Memory that somebody else owns (from_blob) may be gone by then.
  if (!tensor.has_storage() ||
      (tensor.storage().resizable() && static_cast<int64_t>(tensor.nbytes()) > kSnapshotBytes)) {
    ref->version = tensor._version();
  } else {
    ref->value = tensor.detach().clone();
  }
  return ref;
}

c10::intrusive_ptr<DeferredStorage> Recording::NewStorage(int64_t bytes) {
  writers_.emplace_back();
  return c10::make_intrusive<DeferredStorage>(shared_from_this(),
                                              static_cast<int>(writers_.size()) - 1, bytes);
}

void Recording::Adopt(const at::Tensor& meta,
                      const c10::intrusive_ptr<DeferredStorage>& storage) const {
  const c10::TensorImpl& impl = *meta.unsafeGetTensorImpl();
  auto copy = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage),
                                                   impl.key_set().add(kDeferredKey), impl.dtype());
  copy->set_sizes_and_strides(meta.sizes(), meta.strides());
  copy->set_storage_offset(meta.storage_offset());
  meta.unsafeGetTensorImpl()->shallow_copy_from(copy);
}

void Recording::Add(RecordedOperator op) {
  const int index = size();
  for (int storage : op.writes) {
    if (writers_[storage].empty() || writers_[storage].back() != index) {
      writers_[storage].push_back(index);
    }
  }
  ops_.push_back(std::move(op));
}

std::vector<int> Recording::Closure(Bounds wanted, std::vector<bool> chosen) const {
  std::map<int, int> done;
  while (!wanted.empty()) {
    const auto [storage, bound] = wanted.back();
    wanted.pop_back();
    int& from = done[storage];
    for (int writer : writers_[storage]) {
      if (writer < from || writer >= bound || chosen[writer]) continue;
      chosen[writer] = true;
      for (int used : ops_[writer].uses) wanted.emplace_back(used, writer);
      for (int written : ops_[writer].writes) wanted.emplace_back(written, writer);
    }
    from = std::max(from, bound);
  }
  std::vector<int> indices;
  for (int i = 0; i < size(); ++i) {
    if (chosen[i]) indices.push_back(i);
  }
  return indices;
}

std::vector<int> Recording::OperatorsFor(const std::vector<int>& storages) const {
  Bounds wanted;
  for (int storage : storages) wanted.emplace_back(storage, size());
  return Closure(std::move(wanted), std::vector<bool>(size()));
}

std::vector<int> Recording::OperatorsBefore(int index) const {
  const RecordedOperator& op = ops_[index];
  if (op.fills) return {index};
  std::vector<bool> chosen(size());
  chosen[index] = true;
  Bounds wanted;
  for (int storage : op.uses) wanted.emplace_back(storage, index);
  return Closure(std::move(wanted), std::move(chosen));
}

const std::shared_ptr<Recording>& CurrentRecording() { return current_recording; }

std::shared_ptr<Recording> SetCurrentRecording(std::shared_ptr<Recording> recording) {
  return std::exchange(current_recording, std::move(recording));
}

}  // namespace medfusion
