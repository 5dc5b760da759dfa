// What a module's constructor computes, written down instead of computed.
#ifndef MEDFUSION_DEFERRED_INIT_RECORDING_H_
#define MEDFUSION_DEFERRED_INIT_RECORDING_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/StorageImpl.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "medfusion/deferred_init/random_streams.h"

namespace medfusion {

// Note [Tensors without memory yet]
// LibTorch's modules take no device, and LibTorch has no device context as Python does. But every
// tensor comes from an operator, and a dispatch key that a thread includes sees them all. Under it
// (dispatch.cc) operators give meta tensors, which have shapes and no memory, and are written down.
// The key is one that LibTorch reserves for this use outside of it, and lies above autograd.
//
// Which recorded values a tensor stands for is written in its storage, which is of a class of our
// own: views, tied parameters, set_data and Module::to need no bookkeeping then. An operator reads
// and writes storages; to replay is to run, in the recorded order, the operators that a storage
// depends on. The tensors carry the key too, so that using one afterwards is noticed.
constexpr c10::DispatchKey kDeferredKey = c10::DispatchKey::DeferredInit;

class Recording;

class DeferredStorage : public c10::StorageImpl {
 public:
  DeferredStorage(std::shared_ptr<Recording> recording, int number, int64_t bytes);

  const std::shared_ptr<Recording> recording;
  const int number;
};

// A tensor among an operator's arguments or results.
struct TensorRef : torch::CustomClassHolder {
  int storage = -1;  // in the recording; -1: `value`, which has memory
  at::Tensor value;
  int64_t version = -1;  // of value; -1 for a snapshot of our own
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
};
using TensorRefPtr = c10::intrusive_ptr<TensorRef>;

struct TensorRefList : torch::CustomClassHolder {
  std::vector<c10::IValue> elements;  // capsules of TensorRef, or None
  bool optional = false;
};

struct RecordedOperator {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;  // tensors and lists of them as capsules
  std::vector<TensorRefPtr> results;   // by their place among all result tensors; null: not new
  std::vector<int> uses;               // storages among the arguments
  std::vector<int> writes;             // storages among the arguments, and new ones
  RandomStreams::Place random;         // stream -1: draws nothing
  bool fills = false;                  // its one tensor argument is written and never read
};

// Not thread safe. Belongs to the storages that it made: it lives as long as one of them.
class Recording : public std::enable_shared_from_this<Recording> {
 public:
  // Numbers of operators and storages count from 0 in the order of recording.
  const RecordedOperator& op(int index) const { return ops_[index]; }
  int size() const { return static_cast<int>(ops_.size()); }
  RandomStreams& random() { return random_; }

  // Those that storage `number` depends on, sorted.
  std::vector<int> OperatorsFor(const std::vector<int>& storages) const;
  // Those that operator `index` depends on, itself last; for one that fills, itself only.
  std::vector<int> OperatorsBefore(int index) const;

  void Add(RecordedOperator op);
  // Gives `meta`, which nothing else refers to, a storage of this recording.
  void Adopt(const at::Tensor& meta, const c10::intrusive_ptr<DeferredStorage>& storage) const;
  c10::intrusive_ptr<DeferredStorage> NewStorage(int64_t bytes);

 private:
  using Bounds = std::vector<std::pair<int, int>>;  // storage, first operator that does not count
  std::vector<int> Closure(Bounds wanted, std::vector<bool> chosen) const;

  std::vector<RecordedOperator> ops_;
  std::vector<std::vector<int>> writers_;  // by storage: operators, in order
  RandomStreams random_;
};

// Null when the tensor has values.
DeferredStorage* DeferredStorageOf(const at::Tensor& tensor);

// A description of a tensor with or without memory. A small tensor with memory is copied, so that
// later changes do not count; of a large one, a change is an error at replay.
TensorRefPtr Describe(const at::Tensor& tensor);

// The recording that this thread makes, null outside of DeferInit.
const std::shared_ptr<Recording>& CurrentRecording();
// Sets it, and returns the one before.
std::shared_ptr<Recording> SetCurrentRecording(std::shared_ptr<Recording> recording);

}  // namespace medfusion

#endif  // MEDFUSION_DEFERRED_INIT_RECORDING_H_
