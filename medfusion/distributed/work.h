// A collective that was started and can be waited for.
#ifndef MEDFUSION_DISTRIBUTED_WORK_H_
#define MEDFUSION_DISTRIBUTED_WORK_H_

#include <memory>
#include <stdexcept>
#include <string>

namespace medfusion {

// What a collective throws when it cannot finish: a peer died or stopped, the timeout passed, or
// the ranks disagree about the call. The text names the operation, its number in the group, the
// group, this rank and, where known, the rank that is to blame. The group is unusable afterwards.
class CollectiveError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Not thread safe. The tensors of the collective stay alive as long as the Work does, and must not
// be written (inputs) or read (outputs) before Wait() returned.
class Work {
 public:
  virtual ~Work() = default;

  // Blocks until the result is in the output tensor, at most for the group's timeout. On CUDA the
  // current stream waits, not the host. A second call returns at once. Throws CollectiveError.
  virtual void Wait() = 0;

  // True when Wait() would not block on a peer. A failed collective counts as completed.
  virtual bool IsCompleted() = 0;
};

using WorkPtr = std::shared_ptr<Work>;

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_WORK_H_
