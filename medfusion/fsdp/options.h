// How an FSDPWrapper behaves.
#ifndef MEDFUSION_FSDP_OPTIONS_H_
#define MEDFUSION_FSDP_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "medfusion/distributed/device_mesh.h"
#include "medfusion/distributed/process_group.h"
#include "medfusion/fsdp/unit_policy.h"

namespace medfusion {

// What is spread over the ranks. Names and meaning are PyTorch's.
enum class ShardingStrategy {
  FULL_SHARD,     // parameters, gradients and optimizer state; parked between uses
  SHARD_GRAD_OP,  // the same, but parameters stay whole from their first use to their gradient
  NO_SHARD,       // nothing: every rank has all, gradients are averaged
  HYBRID_SHARD,   // FULL_SHARD within a row of the mesh, the same on every row
};

// "FULL_SHARD" etc.
const char* ShardingStrategyName(ShardingStrategy strategy);

// The same on all ranks; the constructor checks what it can.
struct FSDPOptions {
  ShardingStrategy sharding_strategy = ShardingStrategy::FULL_SHARD;

  // Which modules become units; see UnitPolicy, whose fields these are.
  int64_t min_num_params = 1'000'000;
  std::function<bool(const UnitCandidate&)> unit_predicate;
  std::vector<std::string> unit_names;

  // The ranks that train together; the default group (SetupDistributed) when null.
  std::shared_ptr<ProcessGroup> group;
  // HYBRID_SHARD's rows and columns; when absent, the rows are the hosts.
  std::optional<DeviceMesh> mesh;

  // How many units may be whole at once in forward and backward, at least 1; an operator that needs
  // more at once gets them. SHARD_GRAD_OP has no limit.
  int max_resident_units = 2;

  // Parameters and buffers become rank 0's at construction; off, the caller has made them equal.
  bool sync_module_states = true;
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_OPTIONS_H_
