// One unit's parameters of one dtype: a shard that stays, and a full storage that comes and goes.
#ifndef MEDFUSION_FSDP_FLAT_PARAMETER_H_
#define MEDFUSION_FSDP_FLAT_PARAMETER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "medfusion/distributed/process_group.h"
#include "medfusion/fsdp/full_buffers.h"
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
// With one shard the parameters are views of the shard, which is whole, and nothing is ever paged;
// paged() is false.
class FlatParameter {
 public:
  struct Member {
    std::string name;
    at::Tensor tensor;  // the module's
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    bool trained = false;  // requires_grad at construction
  };

  // Takes over the parameters' memory. Collective over `sync`, when given: values become its
  // rank 0's. `handler` and `buffers` outlive this object.
  FlatParameter(std::string unit, const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                ProcessGroup& shard_group, ProcessGroup* sync, PageHandler* handler,
                FullBuffers& buffers);
  // Parked parameters stay parked: an operator that uses one throws.
  ~FlatParameter();
  FlatParameter(const FlatParameter&) = delete;
  FlatParameter& operator=(const FlatParameter&) = delete;

  // Collective over the shard group: fills the full storage. Does nothing when it is filled. The
  // parameters' version counters do not move: see Note [Refilling storage].
  void PageIn();
  void PageOut();
  // This rank's part of the full storage, which is filled, goes into its shard. Not collective.
  void WriteBack();

  bool paged() const { return storage_ != nullptr; }
  // True when the parameters can be read.
  bool resident() const { return !paged() || buffer_.capacity > 0; }

  const std::string& unit() const { return unit_; }
  const ShardLayout& layout() const { return layout_; }
  const std::vector<Member>& members() const { return members_; }
  at::ScalarType dtype() const { return shard_.scalar_type(); }
  c10::Device device() const { return shard_.device(); }
  const at::Tensor& shard() const { return shard_; }
  // The parts of the shard, one per member: flat, possibly empty; with one shard, of the
  // parameter's shape. Leaves that require grad as the parameter did.
  const std::vector<at::Tensor>& slices() const { return slices_; }
  // A tensor over member `index`'s part of `shard_like`, which is laid out like the shard.
  at::Tensor SliceOf(const at::Tensor& shard_like, int index) const;

  // The name of the parameter at an element of the full storage.
  const std::string& NameAt(int64_t storage_offset) const;

 private:
  at::Tensor Flatten(ProcessGroup* sync) const;
  void Repoint();

  const std::string unit_;
  ProcessGroup& shard_group_;
  PageHandler* const handler_;
  FullBuffers& buffers_;
  std::vector<Member> members_;
  ShardLayout layout_;
  at::Tensor shard_;
  std::vector<at::Tensor> slices_;
  c10::intrusive_ptr<PagedStorage> storage_;  // null with one shard
  at::Tensor full_;                           // over storage_, without the paging key
  FullBuffers::Buffer buffer_;                // capacity 0 while parked; its data is in storage_
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_FLAT_PARAMETER_H_
