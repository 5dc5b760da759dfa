#include "medfusion/fsdp/flat_parameter.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <utility>

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
                             ProcessGroup& shard_group, ProcessGroup* sync, PageHandler* handler,
                             FullBuffers& buffers)
    : unit_(std::move(unit)), shard_group_(shard_group), handler_(handler), buffers_(buffers) {
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
  const at::Tensor flat = Flatten(sync);
  if (layout_.shards == 1) {
    shard_ = flat;
  } else {
    shard_ = shard_group.Allocate(layout_.shard_numel, flat.scalar_type());
    shard_.copy_(flat.narrow(0, shard_group.rank() * layout_.shard_numel, layout_.shard_numel));
  }
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

at::Tensor FlatParameter::Flatten(ProcessGroup* sync) const {
  at::Tensor flat = at::zeros({layout_.padded_numel()}, members_.front().tensor.options());
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    flat.as_strided(member.sizes, member.strides, layout_.offsets[i]).copy_(member.tensor);
  }
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
  if (layout_.shards == 1) {
    for (size_t i = 0; i < members_.size(); ++i) {
      const Member& member = members_[i];
      member.tensor.set_data(
          PlainTensorOver(shard_, layout_.offsets[i], member.sizes, member.strides));
    }
    return;
  }
  if (layout_.numel == 0) return;  // nothing to page; the parameters stay as they are
  const int64_t bytes = layout_.padded_numel() * shard_.element_size();
  storage_ = c10::make_intrusive<PagedStorage>(bytes, shard_.device(), handler_, this);
  const auto tensor_over = [&](c10::DispatchKeySet keys, int64_t offset, at::IntArrayRef sizes,
                               at::IntArrayRef strides) {
    at::Tensor tensor =
        at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage_), keys, shard_.dtype());
    tensor.unsafeGetTensorImpl()->set_storage_offset(offset);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    return tensor;
  };
  full_ = tensor_over(shard_.key_set(), 0, {layout_.padded_numel()}, {1});
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    member.tensor.set_data(tensor_over(shard_.key_set().add(kPagedKey), layout_.offsets[i],
                                       member.sizes, member.strides));
  }
}

void FlatParameter::PageIn() {
  if (resident()) return;
  FullBuffers::Buffer buffer = buffers_.Take(static_cast<int64_t>(storage_->nbytes()));
  storage_->set_data_ptr_noswap(std::move(buffer.data));
  buffer_.capacity = buffer.capacity;
  c10::AutoGradMode no_grad(false);
  try {
    shard_group_.AllGather(full_, shard_)->Wait();
  } catch (...) {
    PageOut();
    throw;
  }
}

void FlatParameter::PageOut() {
  if (!paged() || !resident()) return;
  buffer_.data = storage_->set_data_ptr(c10::DataPtr(nullptr, shard_.device()));
  buffers_.Return(std::exchange(buffer_, {}));
}

void FlatParameter::WriteBack() {
  if (!paged()) return;
  c10::AutoGradMode no_grad(false);
  shard_.copy_(full_.narrow(0, shard_group_.rank() * layout_.shard_numel, layout_.shard_numel));
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
