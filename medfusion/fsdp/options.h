// How an FSDPWrapper behaves.
#ifndef MEDFUSION_FSDP_OPTIONS_H_
#define MEDFUSION_FSDP_OPTIONS_H_

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "medfusion/distributed/device_mesh.h"
#include "medfusion/distributed/process_group.h"
#include "medfusion/fsdp/initial_values.h"
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

// Compute in another dtype than the optimizer's. PyTorch: MixedPrecisionPolicy.
struct MixedPrecision {
  // Of the module's parameters in forward and backward, at::kBFloat16 or at::kHalf as a rule;
  // absent: their own. Slices, and so optimizer state and checkpoints, keep the parameters' own
  // dtype. float16 gradients underflow: scale the loss (medfusion/optim's GradScaler).
  //
  // Buffers keep their dtype, and so do the parameters of modules with running statistics
  // (BatchNorm): statistics of low precision drift.
  std::optional<at::ScalarType> param_dtype;
  // In which gradients are collected and added up over the ranks; absent: float32 when param_dtype
  // has 16 bits.
  std::optional<at::ScalarType> reduce_dtype;
  // Names of further parameters that keep their dtype.
  std::function<bool(const std::string& name)> keep_precision;
  // Floating-point tensors among forward's arguments, and in vectors of tensors, become
  // param_dtype.
  bool cast_forward_inputs = true;
  // What forward returns, if it is a floating-point tensor; absent: as computed.
  std::optional<at::ScalarType> output_dtype;
};

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

  // How many units may be whole, or on the way, at once in forward and backward, at least 1; an
  // operator that needs more at once gets them. SHARD_GRAD_OP has no limit.
  int max_resident_units = 2;
  // How many units ahead of the one in use are gathered, in the order that the first step has
  // learned, while this one computes; within max_resident_units. 0: none.
  int forward_prefetch = 1;
  int backward_prefetch = 1;
  // Units whose whole gradients may be on their way while another's are collected. With 0, one
  // whole gradient is in memory at a time: backward goes on while it is reduced, until the next
  // unit's first gradient.
  int max_gradients_in_flight = 0;

  MixedPrecision mixed_precision;

  // For GPUs: shards, gradients of shards and optimizer state live in page-locked host memory, and
  // the optimizer runs on the host. Without effect on the CPU.
  bool cpu_offload = false;

  // Parameters and buffers become rank 0's at construction; off, the caller has made them equal.
  bool sync_module_states = true;

  // Gives parameters and buffers on the meta device their values, one after another: fills
  // `tensor`, which is contiguous and in host memory. With sync_module_states, called on rank 0
  // only; the other ranks' modules may be on meta in any case. Not needed for modules built with
  // DeferInit. PyTorch: param_init_fn, by module.
  ParamInitFn param_init_fn;
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_OPTIONS_H_
