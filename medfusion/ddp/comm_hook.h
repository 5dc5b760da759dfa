// What is done with a full bucket: the plain all-reduce, compressed ones, or the user's own.
#ifndef MEDFUSION_DDP_COMM_HOOK_H_
#define MEDFUSION_DDP_COMM_HOOK_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "medfusion/distributed/process_group.h"

namespace medfusion {

// A bucket whose gradients are all there. The tensors are valid until the hook's Work has been
// waited for.
struct GradBucket {
  int index = 0;  // of this step, 0 is sent first
  bool is_last = false;
  // The flat memory of all gradients, with zeros between them.
  at::Tensor buffer;
  // The same memory, one tensor per parameter, and the parameters' names.
  std::vector<at::Tensor> gradients;
  std::vector<std::string> names;
  // What the sum over the ranks is to be divided by: the number of ranks, or what Join chose.
  int divisor = 1;
};

// Starts to combine `bucket.buffer` over the ranks and returns at once, or blocks and returns null.
// When the Work has been waited for, `bucket.buffer` holds the final gradient, already divided.
// Collective: called on all ranks for the same buckets in the same order, by the thread that runs
// backward, and once more for all buckets by ranks that are shadowing in a Join. It may keep state
// (error feedback); when buckets are rebuilt after the first step their sizes change. PyTorch:
// register_comm_hook.
using CommHook = std::function<WorkPtr(ProcessGroup& group, GradBucket& bucket)>;

// Sends half as much: gradients are cast to float16 (bfloat16), divided, summed in that type and
// cast back. Divided first, so that the sum does not overflow: PyTorch's
// default_hooks.fp16_compress_hook.
WorkPtr Float16CompressHook(ProcessGroup& group, GradBucket& bucket);
WorkPtr BFloat16CompressHook(ProcessGroup& group, GradBucket& bucket);

// A Work that waits for `work` (may be null) and then runs `finish`, once: for hooks that cast
// back.
WorkPtr ThenFinish(WorkPtr work, std::function<void()> finish);

}  // namespace medfusion

#endif  // MEDFUSION_DDP_COMM_HOOK_H_
