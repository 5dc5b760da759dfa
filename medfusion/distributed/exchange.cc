#include "medfusion/distributed/exchange.h"

#include <ATen/ops/empty.h>

#include <exception>
#include <stdexcept>
#include <utility>

namespace medfusion {
namespace {

// Free scratch that is kept: the communication thread's and a waiting caller's.
constexpr size_t kFreeScratch = 2;
constexpr int kTags = 1 << 30;

}  // namespace

ExchangeRoom::ExchangeRoom(std::unique_ptr<Transport> transport, int rank, int size)
    : transport(std::move(transport)), rank(rank), size(size) {}

at::Tensor ExchangeRoom::TakeScratch(int64_t bytes) {
  {
    std::lock_guard lock(mutex);
    if (!free_scratch.empty()) {
      at::Tensor scratch = std::move(free_scratch.back());
      free_scratch.pop_back();
      if (NumBytes(scratch) >= bytes) return scratch;
    }
  }
  return at::empty({bytes}, at::kByte);
}

void ExchangeRoom::GiveBack(at::Tensor scratch) {
  std::lock_guard lock(mutex);
  if (free_scratch.size() < kFreeScratch) free_scratch.push_back(std::move(scratch));
}

Exchange::Exchange(std::shared_ptr<ExchangeRoom> room, std::vector<at::Tensor> tensors)
    : room_(std::move(room)), tag_(room_->next_tag), tensors_(std::move(tensors)) {
  room_->next_tag = (room_->next_tag + 2) % kTags;
}

void Exchange::Begin() {
  try {
    Post();
  } catch (...) {
    Bury();
    throw;
  }
}

void Exchange::Abort() {
  std::lock_guard lock(waiting_mutex_);
  aborted_ = true;
  if (waiting_ != nullptr) waiting_->Abort();
}

void Exchange::Send(const std::byte* data, int64_t bytes, int peer, int lane) {
  if (bytes > 0) sends_.push_back(room_->transport->Send(data, bytes, peer, tag_ + lane));
}

std::unique_ptr<Transfer> Exchange::Receive(std::byte* data, int64_t bytes, int peer, int lane) {
  if (bytes == 0) return nullptr;
  return room_->transport->Receive(data, bytes, peer, tag_ + lane);
}

void Exchange::Await(Transfers& transfers) {
  for (std::unique_ptr<Transfer>& transfer : transfers) {
    if (transfer) Await(*transfer);
    transfer.reset();
  }
  transfers.clear();
}

void Exchange::Await(Transfer& transfer) {
  const auto set_waiting = [this](Transfer* waiting) {
    std::lock_guard lock(waiting_mutex_);
    if (aborted_ && waiting != nullptr) {
      throw std::runtime_error("given up, because the group has failed");
    }
    waiting_ = waiting;
  };
  set_waiting(&transfer);
  try {
    transfer.Wait();
  } catch (...) {
    set_waiting(nullptr);
    throw;
  }
  set_waiting(nullptr);
}

void Exchange::Body() {
  try {
    {
      std::lock_guard lock(room_->mutex);
      if (!room_->failure.empty()) {
        throw std::runtime_error("an earlier collective failed: " + room_->failure);
      }
    }
    Complete();
  } catch (...) {
    Bury();
    throw;
  }
}

void Exchange::Bury() {
  std::string cause = "unknown";
  try {
    throw;
  } catch (const std::exception& error) {
    cause = error.what();
  } catch (...) {
  }
  std::lock_guard lock(room_->mutex);
  if (room_->failure.empty()) room_->failure = cause;
  room_->failed.push_back(shared_from_this());
}

}  // namespace medfusion
