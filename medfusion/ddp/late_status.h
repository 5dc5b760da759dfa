// Reads numbers from an accelerator without stopping it.
#ifndef MEDFUSION_DDP_LATE_STATUS_H_
#define MEDFUSION_DDP_LATE_STATUS_H_

#include <ATen/core/Tensor.h>

#include <memory>

namespace medfusion {

// Note [Late status]
// Reading a number that a stream has yet to compute stops the host, which could otherwise queue the
// optimizer's step and more. So the status of a backward on an accelerator is copied to the host by
// the stream, and looked at when the next forward begins.
class LateStatus {
 public:
  LateStatus();
  ~LateStatus();

  // Queues a copy of `numbers` (on an accelerator) behind what its current stream does.
  void Record(const at::Tensor& numbers);
  // Waits for that copy, if there is one that was not taken, and returns whether any number was not
  // 0.
  bool Take();

 private:
  struct Pending;
  std::unique_ptr<Pending> pending_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DDP_LATE_STATUS_H_
