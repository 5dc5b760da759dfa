#include "medfusion/deferred_init/deferred_init.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/module.h>

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "medfusion/deferred_init/recording.h"
#include "medfusion/deferred_init/replay.h"

namespace medfusion {

struct DeferInitScope::State {
  State() : include(kDeferredKey) {
    if (CurrentRecording() != nullptr) return;
    outermost = true;
    SetCurrentRecording(std::make_shared<Recording>());
  }
  ~State() {
    if (outermost) SetCurrentRecording(nullptr)->random().Leave();
  }
  bool outermost = false;
  c10::impl::IncludeDispatchKeyGuard include;
};

DeferInitScope::DeferInitScope() : state_(std::make_unique<State>()) {}
DeferInitScope::~DeferInitScope() = default;

namespace internal {

void ExplainMissingMemory(const c10::Error& error) {
  if (std::string_view(error.what_without_backtrace()).find("not allocated yet") ==
      std::string_view::npos) {
    return;
  }
  throw std::logic_error(
      "a tensor made inside DeferInit has no memory yet, and its data is asked for around the "
      "dispatcher (data_ptr, accessor, print). Compute initial values with tensor operators, or "
      "compute them outside of DeferInit and copy them in; medfusion::Materialize gives memory");
}

}  // namespace internal

bool IsDeferred(const at::Tensor& tensor) { return DeferredStorageOf(tensor) != nullptr; }

void Materialize(std::span<const at::Tensor> tensors) {
  std::map<const Recording*, std::vector<at::Tensor>> by_recording;
  for (const at::Tensor& tensor : tensors) {
    if (const DeferredStorage* storage = DeferredStorageOf(tensor)) {
      by_recording[storage->recording.get()].push_back(tensor);
    }
  }
  for (const auto& [recording, group] : by_recording) {
    const std::vector<at::Tensor> values = Replay(group);
    for (size_t i = 0; i < group.size(); ++i) GiveValue(group[i], values[i]);
  }
}

void Materialize(const torch::nn::Module& module) {
  std::vector<at::Tensor> tensors = module.parameters();
  for (const at::Tensor& buffer : module.buffers()) tensors.push_back(buffer);
  Materialize(tensors);
}

at::Tensor ComputeDeferred(const at::Tensor& tensor) {
  if (!IsDeferred(tensor)) return tensor;
  return Replay({&tensor, 1}).front();
}

void GiveValue(const at::Tensor& tensor, const at::Tensor& value) {
  if (value.sizes() != tensor.sizes() || value.scalar_type() != tensor.scalar_type()) {
    throw std::invalid_argument(absl::StrCat("GiveValue: the value is ",
                                             std::string(c10::toString(value.scalar_type())), " [",
                                             absl::StrJoin(value.sizes(), ", "), "], the tensor ",
                                             std::string(c10::toString(tensor.scalar_type())), " [",
                                             absl::StrJoin(tensor.sizes(), ", "), "]"));
  }
  // set_data refuses to change the device from meta.
  tensor.unsafeGetTensorImpl()->shallow_copy_from(value.getIntrusivePtr());
}

}  // namespace medfusion
