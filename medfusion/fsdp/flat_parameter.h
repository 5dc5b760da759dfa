// One unit's parameters of one dtype: a shard that stays, and a full storage that comes and goes.
#ifndef MEDFUSION_FSDP_FLAT_PARAMETER_H_
#define MEDFUSION_FSDP_FLAT_PARAMETER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "medfusion/distributed/process_group.h"
#include "medfusion/fsdp/full_buffers.h"
#include "medfusion/fsdp/initial_values.h"
#include "medfusion/fsdp/paged_storage.h"
#include "medfusion/fsdp/shard_layout.h"

namespace medfusion {

// A tensor over part of `storage_of`'s memory that autograd does not know as a view, so that
// detach_(), as of zero_grad, works on it. `offset` counts elements from storage_of's first one.
at::Tensor PlainTensorOver(const at::Tensor& storage_of, int64_t offset, at::IntArrayRef sizes,
                           at::IntArrayRef strides);

// The module's own parameter tensors become views of the full storage, in their memory order and
// with their strides. While it is parked they keep their shapes, but hold no memory.
//
// With one shard and one dtype the parameters are views of the shard, which is whole, and nothing
// is ever paged; paged() is false.
//
// Note [Two dtypes of a parameter]
// With mixed precision the shard, and with it the optimizer's slices, keep the dtype that the
// parameters came with; the full storage, and with it the module's tensors, have the compute dtype.
// A rank casts its own shard into its place in the full storage, and the others receive it so.
// Inside FullParameters the module's tensors point to a storage of the shard's dtype instead.
class FlatParameter {
 public:
  struct Member {
    std::string name;
    at::Tensor tensor;  // the module's
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    bool trained = false;  // requires_grad at construction
  };

  struct Placement {
    // Of the module's tensors; the parameters' own when absent.
    std::optional<at::ScalarType> compute_dtype;
    // The shard, and with it gradients and optimizer state, lies in host memory; parameters are
    // whole on the group's device only.
    bool shard_on_host = false;
  };

  // Takes over the parameters' memory, or computes their values one parameter after another.
  // Collective over `sync`, when given: values become its rank 0's, and when rank 0 cannot compute
  // them, all throw std::runtime_error. `handler` and `buffers` outlive this object.
  FlatParameter(std::string unit, const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                ProcessGroup& shard_group, ProcessGroup* sync, const InitialValues& values,
                const Placement& placement, PageHandler* handler, FullBuffers& buffers);
  // Parked parameters stay parked: an operator that uses one throws.
  ~FlatParameter();
  FlatParameter(const FlatParameter&) = delete;
  FlatParameter& operator=(const FlatParameter&) = delete;

  // Collective over the shard group: begins to fill the full storage, and returns. Does nothing
  // when that was done. The parameters' version counters do not move: see Note [Refilling storage].
  void StartPageIn();
  // Blocks until the parameters can be read. Parks them and throws when the transfer failed.
  void FinishPageIn();
  // Waits for a transfer that is under way, whatever becomes of it.
  void PageOut() noexcept;

  // The same for values of the shard's dtype: see Note [Two dtypes of a parameter]. Parked before
  // and after.
  void StartExactPageIn();
  void FinishExactPageIn();
  // With `write_back`, this rank's part of the values goes into its shard. Not collective.
  void ExactPageOut(bool write_back);

  bool paged() const { return storage_ != nullptr; }
  // True when the full storage has memory, be it filled or on the way.
  bool in_memory() const { return !paged() || buffer_.capacity > 0; }

  const std::string& unit() const { return unit_; }
  const ShardLayout& layout() const { return layout_; }
  const std::vector<Member>& members() const { return members_; }
  // Of the module's tensors, and so of their gradients.
  at::ScalarType compute_dtype() const { return compute_dtype_; }
  // Where the module's tensors live.
  c10::Device device() const { return device_; }
  int64_t full_bytes() const {
    return layout_.padded_numel() * static_cast<int64_t>(c10::elementSize(compute_dtype_));
  }
  const at::Tensor& shard() const { return shard_; }
  // The parts of the shard, one per member: flat, possibly empty; with one shard, of the
  // parameter's shape. Leaves that require grad as the parameter did.
  const std::vector<at::Tensor>& slices() const { return slices_; }
  // A tensor over member `index`'s part of `shard_like`, which is laid out like the shard.
  at::Tensor SliceOf(const at::Tensor& shard_like, int index) const;

  // The name of the parameter at an element of the full storage.
  const std::string& NameAt(int64_t storage_offset) const;

 private:
  struct Paging {
    c10::intrusive_ptr<PagedStorage> storage;
    at::Tensor full;  // over the storage, without the paging key
  };

  at::Tensor Flatten(ProcessGroup* sync, const InitialValues& values) const;
  at::Tensor MakeShard(const at::Tensor& flat, bool on_host) const;
  void Repoint();
  Paging MakePaging(at::ScalarType dtype) const;
  void PointParametersAt(const Paging& paging) const;
  WorkPtr StartGather(const at::Tensor& full) const;
  at::Tensor OwnPart(const at::Tensor& full) const;

  const std::string unit_;
  ProcessGroup& shard_group_;
  PageHandler* const handler_;
  FullBuffers& buffers_;
  std::vector<Member> members_;
  ShardLayout layout_;
  c10::Device device_;
  at::ScalarType compute_dtype_;
  at::Tensor shard_;
  std::vector<at::Tensor> slices_;
  c10::intrusive_ptr<PagedStorage> storage_;  // null when nothing is paged
  at::Tensor full_;                           // over storage_, without the paging key
  FullBuffers::Buffer buffer_;                // capacity 0 while parked; its data is in storage_
  WorkPtr transfer_;                          // null when the storage is filled or parked
  Paging exact_;                              // in FullParameters, with two dtypes
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_FLAT_PARAMETER_H_
