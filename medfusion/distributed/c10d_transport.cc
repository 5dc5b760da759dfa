#include "medfusion/distributed/c10d_transport.h"

#include <ATen/ops/from_blob.h>

#include <stdexcept>
#include <utility>
#include <vector>

namespace medfusion {
namespace {

class C10dTransfer : public Transfer {
 public:
  explicit C10dTransfer(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}

  void Wait() override {
    if (!work_->wait()) throw std::runtime_error("the transfer was given up");
  }
  void Abort() override { work_->abort(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

class C10dTransport : public Transport {
 public:
  C10dTransport(c10::intrusive_ptr<c10d::Backend> backend, std::mutex& mutex)
      : backend_(std::move(backend)), mutex_(mutex) {}

  std::unique_ptr<Transfer> Send(const std::byte* data, int64_t bytes, int peer, int tag) override {
    std::vector<at::Tensor> message = Wrap(const_cast<std::byte*>(data), bytes);
    std::lock_guard lock(mutex_);
    return std::make_unique<C10dTransfer>(backend_->send(message, peer, tag));
  }

  std::unique_ptr<Transfer> Receive(std::byte* data, int64_t bytes, int peer, int tag) override {
    std::vector<at::Tensor> message = Wrap(data, bytes);
    std::lock_guard lock(mutex_);
    return std::make_unique<C10dTransfer>(backend_->recv(message, peer, tag));
  }

 private:
  static std::vector<at::Tensor> Wrap(std::byte* data, int64_t bytes) {
    return {at::from_blob(data, {bytes}, at::TensorOptions(at::kByte))};
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::mutex& mutex_;
};

}  // namespace

std::unique_ptr<Transport> MakeC10dTransport(c10::intrusive_ptr<c10d::Backend> backend,
                                             std::mutex& mutex) {
  return std::make_unique<C10dTransport>(std::move(backend), mutex);
}

}  // namespace medfusion
