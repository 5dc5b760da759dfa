// The ranks as a table of (replicate, shard): HYBRID_SHARD's two directions.
#ifndef MEDFUSION_DISTRIBUTED_DEVICE_MESH_H_
#define MEDFUSION_DISTRIBUTED_DEVICE_MESH_H_

#include <absl/status/statusor.h>

#include <memory>
#include <utility>

#include "medfusion/distributed/process_group.h"

namespace medfusion {

// Rank r of the world is replica r / shard_size, shard r % shard_size. Parameters are sharded along
// a row and the same along a column. (PyTorch: init_device_mesh(..., (replicate, shard)).)
class DeviceMesh {
 public:
  // Collective over `world`. InvalidArgument unless replicate_size * shard_size == world->size().
  // With a shard_size of 0 the shards are the ranks of one host, which must be equally many on
  // every host and numbered one after another; replicate_size may then be 0 too.
  static absl::StatusOr<DeviceMesh> Create(std::shared_ptr<ProcessGroup> world, int replicate_size,
                                           int shard_size);

  // The same table with rows and columns exchanged: rank r is replica r % replicate_size, shard
  // r / replicate_size. Shards are then far apart, and copies near. Not collective.
  DeviceMesh Transposed() const {
    DeviceMesh mesh = *this;
    std::swap(mesh.shard_, mesh.replicate_);
    return mesh;
  }

  // All ranks.
  const std::shared_ptr<ProcessGroup>& world() const { return world_; }
  // This rank's row: the ranks that hold the other shards of the same replica.
  const std::shared_ptr<ProcessGroup>& shard() const { return shard_; }
  // This rank's column: the ranks that hold the same shard in other replicas.
  const std::shared_ptr<ProcessGroup>& replicate() const { return replicate_; }

 private:
  DeviceMesh() = default;

  std::shared_ptr<ProcessGroup> world_;
  std::shared_ptr<ProcessGroup> shard_;
  std::shared_ptr<ProcessGroup> replicate_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_DEVICE_MESH_H_
