#include "medfusion/fsdp/flat_parameter.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "medfusion/distributed/agreement.h"

namespace medfusion {
namespace {

std::vector<int64_t> ContiguousStrides(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    strides[d] = step;
    step *= sizes[d];
  }
  return strides;
}

// Memory that a transfer uses must not serve anything else before it is over. A failure is the
// group's, and the next collective says so.
void WaitQuietly(const WorkPtr& transfer) noexcept {
  if (transfer == nullptr) return;
  try {
    transfer->Wait();
  } catch (...) {
  }
}

}  // namespace

at::Tensor PlainTensorOver(const at::Tensor& storage_of, int64_t offset, at::IntArrayRef sizes,
                           at::IntArrayRef strides) {
  c10::InferenceMode no_inference(false);
  c10::AutoGradMode no_grad(false);
  at::Tensor tensor = at::empty({0}, storage_of.options());
  tensor.set_(storage_of.storage(), storage_of.storage_offset() + offset, sizes, strides);
  return tensor;
}

FlatParameter::FlatParameter(std::string unit,
                             const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                             ProcessGroup& shard_group, ProcessGroup* sync,
                             const InitialValues& values, const Placement& placement,
                             PageHandler* handler, FullBuffers& buffers)
    : unit_(std::move(unit)),
      shard_group_(shard_group),
      handler_(handler),
      buffers_(buffers),
      device_(parameters.front().second.is_meta() ? shard_group.device()
                                                  : parameters.front().second.device()),
      compute_dtype_(placement.compute_dtype.value_or(parameters.front().second.scalar_type())) {
  c10::InferenceMode no_inference(false);
  c10::AutoGradMode no_grad(false);
  std::vector<int64_t> numels;
  for (const auto& [name, tensor] : parameters) {
    members_.push_back({name, tensor, tensor.sizes().vec(),
                        tensor.is_non_overlapping_and_dense() ? tensor.strides().vec()
                                                              : ContiguousStrides(tensor.sizes()),
                        tensor.requires_grad()});
    numels.push_back(tensor.numel());
  }
  layout_ = LayOutShards(numels, shard_group.size());
  shard_ = MakeShard(Flatten(sync, values), placement.shard_on_host && device_.type() != at::kCPU);
  Repoint();
  for (int i = 0; i < static_cast<int>(members_.size()); ++i) {
    slices_.push_back(SliceOf(shard_, i).requires_grad_(members_[i].trained));
  }
}

FlatParameter::~FlatParameter() {
  if (!paged()) return;
  PageOut();
  storage_->handler = nullptr;
  storage_->flat = nullptr;
}

at::Tensor FlatParameter::MakeShard(const at::Tensor& flat, bool on_host) const {
  const at::Tensor part = OwnPart(flat);
  if (on_host) {
    // Page-locked, so that the copies to the device run beside its work.
    at::Tensor shard = at::empty(part.sizes(), part.options().device(at::kCPU).pinned_memory(true));
    return shard.copy_(part);
  }
  if (layout_.shards == 1) return flat;
  return shard_group_.Allocate(layout_.shard_numel, flat.scalar_type()).copy_(part);
}

at::Tensor FlatParameter::Flatten(ProcessGroup* sync, const InitialValues& values) const {
  at::Tensor flat =
      at::zeros({layout_.padded_numel()}, members_.front().tensor.options().device(device_));
  absl::Status computed;
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    if (values.wanted()) {
      try {
        flat.as_strided(member.sizes, member.strides, layout_.offsets[i])
            .copy_(values.Of(member.name, member.tensor));
      } catch (const std::exception& error) {
        computed = absl::InternalError(
            absl::StrCat("initial values of parameter '", member.name, "': ", error.what()));
      }
    }
    values.Place(member.tensor);
  }
  // Ranks must not go on alone to the broadcast.
  if (sync != nullptr) computed = AgreeOnStatus(*sync, computed);
  if (!computed.ok()) throw std::runtime_error(std::string(computed.message()));
  if (sync != nullptr && flat.numel() > 0) sync->Broadcast(flat, 0)->Wait();
  return flat;
}

// Note [Refilling storage]
// Autograd refuses to use a saved tensor whose version counter has moved, and rightly so: its
// values would be others than in forward. Paging out and in changes the memory but not the values,
// so it must not count. It does not: version counters belong to tensors, and paging writes to the
// storage only (set_data gave the parameter the storage, and left its counter alone).
void FlatParameter::Repoint() {
  for (const Member& member : members_) member.tensor.mutable_grad().reset();
  const bool shard_is_all =
      layout_.shards == 1 && compute_dtype_ == shard_.scalar_type() && shard_.device() == device_;
  if (shard_is_all) {
    for (size_t i = 0; i < members_.size(); ++i) {
      const Member& member = members_[i];
      member.tensor.set_data(
          PlainTensorOver(shard_, layout_.offsets[i], member.sizes, member.strides));
    }
    return;
  }
  if (layout_.numel == 0) return;  // nothing to page; the parameters stay as they are
  const Paging paging = MakePaging(compute_dtype_);
  storage_ = paging.storage;
  full_ = paging.full;
  PointParametersAt(paging);
}

FlatParameter::Paging FlatParameter::MakePaging(at::ScalarType dtype) const {
  const int64_t bytes = layout_.padded_numel() * static_cast<int64_t>(c10::elementSize(dtype));
  Paging paging;
  paging.storage =
      c10::make_intrusive<PagedStorage>(bytes, device_, handler_, const_cast<FlatParameter*>(this));
  const at::Tensor like = at::empty({0}, shard_.options().dtype(dtype).device(device_));
  paging.full = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(paging.storage),
                                                         like.key_set(), like.dtype());
  paging.full.unsafeGetTensorImpl()->set_sizes_contiguous({layout_.padded_numel()});
  return paging;
}

void FlatParameter::PointParametersAt(const Paging& paging) const {
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(paging.storage), paging.full.key_set().add(kPagedKey), paging.full.dtype());
    tensor.unsafeGetTensorImpl()->set_storage_offset(layout_.offsets[i]);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(member.sizes, member.strides);
    member.tensor.set_data(tensor);
  }
}

at::Tensor FlatParameter::OwnPart(const at::Tensor& full) const {
  return full.narrow(0, shard_group_.rank() * layout_.shard_numel, layout_.shard_numel);
}

WorkPtr FlatParameter::StartGather(const at::Tensor& full) const {
  const at::Tensor own = OwnPart(full);
  own.copy_(shard_, /*non_blocking=*/true);
  return layout_.shards == 1 ? nullptr : shard_group_.AllGather(full, own);
}

void FlatParameter::StartPageIn() {
  if (in_memory()) return;
  FullBuffers::Buffer buffer = buffers_.Take(full_bytes());
  storage_->set_data_ptr_noswap(std::move(buffer.data));
  buffer_.capacity = buffer.capacity;
  c10::InferenceMode no_inference(false);
  c10::AutoGradMode no_grad(false);
  try {
    transfer_ = StartGather(full_);
  } catch (...) {
    PageOut();
    throw;
  }
}

void FlatParameter::FinishPageIn() {
  if (transfer_ == nullptr) return;
  try {
    transfer_->Wait();
    transfer_ = nullptr;
  } catch (...) {
    transfer_ = nullptr;
    PageOut();
    throw;
  }
}

void FlatParameter::PageOut() noexcept {
  if (!paged() || !in_memory()) return;
  WaitQuietly(std::exchange(transfer_, nullptr));
  buffer_.data = storage_->set_data_ptr(c10::DataPtr(nullptr, device_));
  buffers_.Return(std::exchange(buffer_, {}));
}

void FlatParameter::StartExactPageIn() {
  if (!paged() || compute_dtype_ == shard_.scalar_type()) {
    StartPageIn();
    return;
  }
  c10::InferenceMode no_inference(false);
  c10::AutoGradMode no_grad(false);
  exact_ = MakePaging(shard_.scalar_type());
  exact_.storage->set_data_ptr_noswap(
      c10::GetAllocator(device_.type())->allocate(exact_.storage->nbytes()));
  PointParametersAt(exact_);
  transfer_ = StartGather(exact_.full);
}

void FlatParameter::FinishExactPageIn() {
  if (!exact_.full.defined()) {
    FinishPageIn();
  } else if (const WorkPtr transfer = std::exchange(transfer_, nullptr)) {
    transfer->Wait();
  }
}

void FlatParameter::ExactPageOut(bool write_back) {
  if (!paged()) return;
  c10::InferenceMode no_inference(false);
  c10::AutoGradMode no_grad(false);
  const bool two_dtypes = exact_.full.defined();
  if (write_back) shard_.copy_(OwnPart(two_dtypes ? exact_.full : full_));
  if (!two_dtypes) {
    PageOut();
    return;
  }
  WaitQuietly(std::exchange(transfer_, nullptr));
  exact_.storage->handler = nullptr;
  exact_.storage->flat = nullptr;
  exact_ = {};
  PointParametersAt({storage_, full_});
}

at::Tensor FlatParameter::SliceOf(const at::Tensor& shard_like, int index) const {
  if (layout_.shards == 1) {
    return PlainTensorOver(shard_like, layout_.offsets[index], members_[index].sizes,
                           members_[index].strides);
  }
  const ShardSlice slice = layout_.Slice(index, shard_group_.rank());
  return PlainTensorOver(shard_like, slice.shard_offset, {slice.numel}, {1});
}

const std::string& FlatParameter::NameAt(int64_t storage_offset) const {
  const auto after =
      std::upper_bound(layout_.offsets.begin(), layout_.offsets.end(), storage_offset);
  return members_[after - layout_.offsets.begin() - 1].name;
}

}  // namespace medfusion
