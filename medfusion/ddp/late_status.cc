#include "medfusion/ddp/late_status.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace medfusion {

struct LateStatus::Pending {
  at::Tensor host;
  c10::Event copied;
};

LateStatus::LateStatus() = default;
LateStatus::~LateStatus() = default;

void LateStatus::Record(const at::Tensor& numbers) {
  const c10::Device device = numbers.device();
  pending_ = std::make_unique<Pending>(Pending{
      at::empty(numbers.sizes(), at::TensorOptions(numbers.scalar_type()).pinned_memory(true)),
      c10::Event(device.type())});
  pending_->host.copy_(numbers, /*non_blocking=*/true);
  pending_->copied.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

bool LateStatus::Take() {
  if (pending_ == nullptr) return false;
  const std::unique_ptr<Pending> pending = std::move(pending_);
  pending->copied.synchronize();
  return pending->host.ne(0).any().item<bool>();
}

}  // namespace medfusion
