// The process's default group: set up once, used everywhere, taken down at the end.
//
//   const auto [rank, local_rank, world_size] = medfusion::SetupDistributed().value();
//   ...
//   medfusion::CleanupDistributed().IgnoreError();
//
// Everything here works on the default group; code that holds a ProcessGroup of its own does not
// need it.
#ifndef MEDFUSION_DISTRIBUTED_SETUP_H_
#define MEDFUSION_DISTRIBUTED_SETUP_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "medfusion/distributed/launch_environment.h"
#include "medfusion/distributed/process_group.h"

namespace medfusion {

struct DistributedOptions {
  // "auto": NCCL when it is linked and every local rank has a GPU, else Gloo; or "gloo", "nccl".
  std::string backend = "auto";
  // Also bounds the setup itself: name resolution, the meeting at MASTER_ADDR, the roll call.
  GroupOptions group;
  LaunchFlags flags;
};

struct DistributedContext {
  int rank = 0;        // of all ranks, 0..world_size-1
  int local_rank = 0;  // among the ranks of this host; the index of its GPU
  int world_size = 1;
};

// Joins the ranks of this job and makes them the process's default group. Collective. Alone (no
// launcher in the environment) it returns at once with world_size 1. Within the timeout, on every
// rank that can know:
//   InvalidArgument    a variable is missing, malformed or out of range
//   AlreadyExists      two processes claim one rank, or MASTER_PORT is taken
//   Unavailable        MASTER_ADDR does not resolve, or nobody answers there
//   DeadlineExceeded   ranks are missing (named)
//   FailedPrecondition called twice without CleanupDistributed()
// PyTorch: torch.distributed.init_process_group.
absl::StatusOr<DistributedContext> SetupDistributed(const DistributedOptions& options = {});

// The same without a default group: the caller owns the returned one.
absl::StatusOr<std::shared_ptr<ProcessGroup>> ConnectProcessGroup(
    const LaunchEnvironment& environment, const DistributedOptions& options = {});

// Leaves the default group and closes its connections. Collective; does nothing when there is no
// group. Rank 0, whose store the others may still use, waits for at most 10 s until all have come
// here; DeadlineExceeded names those that have not. After a failed collective nobody waits.
absl::Status CleanupDistributed();

// Of the default group; 0, 0 and 1 when there is none. Not collective.
int GetRank();
int GetLocalRank();
int GetWorldSize();
// True on rank 0, and when there is no group.
bool IsMainProcess();

// Collective: returns when all ranks of the default group have called it. OK at once when there is
// none. Errors as of ProcessGroup, as a Status.
absl::Status Barrier();

// The default group, or null. With threads as ranks, each thread's own (ScopedDefaultGroup).
std::shared_ptr<ProcessGroup> DefaultGroup();

// Makes `group` the calling thread's default group while it lives, for ranks that are threads.
class ScopedDefaultGroup {
 public:
  explicit ScopedDefaultGroup(std::shared_ptr<ProcessGroup> group);
  ~ScopedDefaultGroup();
  ScopedDefaultGroup(const ScopedDefaultGroup&) = delete;
  ScopedDefaultGroup& operator=(const ScopedDefaultGroup&) = delete;

 private:
  std::shared_ptr<ProcessGroup> previous_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_SETUP_H_
