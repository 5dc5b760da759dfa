#include "medfusion/fsdp/initial_values.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <absl/strings/str_cat.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <stdexcept>

#include "medfusion/deferred_init/deferred_init.h"

namespace medfusion {

void InitialValues::RequireSource(const char* kind, const std::string& name,
                                  const at::Tensor& tensor) const {
  if (!wanted_ || !tensor.is_meta() || IsDeferred(tensor) || fn_) return;
  throw std::invalid_argument(
      absl::StrCat("FSDPWrapper: ", kind, " '", name,
                   "' is on the meta device and nothing tells its values. Build the module with "
                   "medfusion::DeferInit, or set FSDPOptions::param_init_fn"));
}

at::Tensor InitialValues::Of(const std::string& name, const at::Tensor& tensor) const {
  if (!tensor.is_meta()) return tensor;
  if (IsDeferred(tensor)) return ComputeDeferred(tensor).to(device_);
  at::Tensor values = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  fn_(name, values);
  return values.to(device_);
}

void InitialValues::Place(const at::Tensor& tensor) const {
  if (!tensor.is_meta()) return;
  const at::Tensor like = at::empty({0}, tensor.options().device(device_));
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(tensor.storage().nbytes()),
      c10::DataPtr(nullptr, device_), /*allocator=*/nullptr, /*resizable=*/false);
  at::Tensor placed = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                               like.key_set(), like.dtype());
  placed.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
  placed.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  GiveValue(tensor, placed);
}

void InitialValues::Materialize(const std::string& name, const at::Tensor& buffer) const {
  if (!buffer.is_meta()) return;
  GiveValue(buffer, wanted_ ? Of(name, buffer)
                            : at::empty_strided(buffer.sizes(), buffer.strides(),
                                                buffer.options().device(device_)));
}

}  // namespace medfusion
