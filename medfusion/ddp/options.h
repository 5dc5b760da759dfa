// How a DDPWrapper behaves.
#ifndef MEDFUSION_DDP_OPTIONS_H_
#define MEDFUSION_DDP_OPTIONS_H_

#include <memory>

#include "medfusion/ddp/bucket_plan.h"
#include "medfusion/ddp/comm_hook.h"
#include "medfusion/distributed/process_group.h"

namespace medfusion {

// The same on all ranks; the constructor checks that. Defaults are PyTorch's.
struct DDPOptions {
  // The ranks that train together; the process's default group (SetupDistributed) when null.
  std::shared_ptr<ProcessGroup> group;
  // How much of the gradient travels in one collective.
  BucketLimits buckets;
  // Set it when some parameters take no part in some steps, on some or all ranks. They count as
  // zero; one that no rank used keeps its grad as it was. Off, such a parameter is an error that
  // names it.
  bool find_unused_parameters = false;
  // Buffers become rank 0's before every training forward outside of no_sync.
  bool broadcast_buffers = true;
  // Every batch norm that runs inside forward in training mode, whatever module calls it,
  // normalises over the joint batch of all ranks (see sync_batch_norm.h). The module stays as it
  // is.
  bool sync_batch_norm = false;
  // What is done with full buckets; plain all-reduce when empty.
  CommHook comm_hook;
};

}  // namespace medfusion

#endif  // MEDFUSION_DDP_OPTIONS_H_
