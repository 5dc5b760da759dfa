#include "medfusion/ddp/comm_hook.h"

#include <c10/core/GradMode.h>

#include <utility>

namespace medfusion {
namespace {

class FinishingWork : public Work {
 public:
  FinishingWork(WorkPtr work, std::function<void()> finish)
      : work_(std::move(work)), finish_(std::move(finish)) {}

  void Wait() override {
    if (work_) work_->Wait();
    if (finish_) std::exchange(finish_, nullptr)();
  }

  bool IsCompleted() override { return work_ == nullptr || work_->IsCompleted(); }

 private:
  WorkPtr work_;
  std::function<void()> finish_;
};

WorkPtr Compress(ProcessGroup& group, GradBucket& bucket, at::ScalarType dtype) {
  c10::AutoGradMode no_grad(false);
  at::Tensor small = bucket.buffer.to(dtype);
  small.div_(bucket.divisor);
  return ThenFinish(group.AllReduce(small), [buffer = bucket.buffer, small] {
    c10::AutoGradMode no_grad(false);
    buffer.copy_(small);
  });
}

}  // namespace

WorkPtr Float16CompressHook(ProcessGroup& group, GradBucket& bucket) {
  return Compress(group, bucket, at::kHalf);
}

WorkPtr BFloat16CompressHook(ProcessGroup& group, GradBucket& bucket) {
  return Compress(group, bucket, at::kBFloat16);
}

WorkPtr ThenFinish(WorkPtr work, std::function<void()> finish) {
  return std::make_shared<FinishingWork>(std::move(work), std::move(finish));
}

}  // namespace medfusion
