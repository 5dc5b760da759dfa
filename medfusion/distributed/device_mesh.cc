#include "medfusion/distributed/device_mesh.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <utility>
#include <vector>

#include "medfusion/base/status.h"

namespace medfusion {
namespace {

// The number of ranks per host, when every host has as many and they are numbered one after
// another.
absl::StatusOr<int> RanksPerHost(const ProcessGroup& world) {
  const int per_host = static_cast<int>(world.RanksOnHostOf(0).size());
  for (int r = 0; r < world.size(); ++r) {
    const std::vector<int> local = world.RanksOnHostOf(r);
    if (static_cast<int>(local.size()) != per_host || local.front() != r / per_host * per_host ||
        local.back() != local.front() + per_host - 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shard_size=0 (one host) needs equally many ranks on every host, numbered one "
          "after another; rank ",
          r, "'s host has ", local.size(), ", rank 0's has ", per_host, ": give shard_size"));
    }
  }
  return per_host;
}

}  // namespace

absl::StatusOr<DeviceMesh> DeviceMesh::Create(std::shared_ptr<ProcessGroup> world,
                                              int replicate_size, int shard_size) {
  if (shard_size == 0) {
    MEDFUSION_ASSIGN_OR_RETURN(shard_size, RanksPerHost(*world));
    if (replicate_size == 0) replicate_size = world->size() / shard_size;
  }
  if (replicate_size < 1 || shard_size < 1 || replicate_size * shard_size != world->size()) {
    return absl::InvalidArgumentError(absl::StrCat("a mesh of ", replicate_size, " x ", shard_size,
                                                   " (replicate x shard) does not have ",
                                                   world->size(), " ranks, as the world has"));
  }
  DeviceMesh mesh;
  mesh.world_ = std::move(world);
  MEDFUSION_RETURN_IF_ERROR(CatchAsStatus([&] {
    mesh.shard_ = mesh.world_->Split(mesh.world_->rank() / shard_size);
    mesh.replicate_ = mesh.world_->Split(mesh.world_->rank() % shard_size);
  }));
  return mesh;
}

}  // namespace medfusion
