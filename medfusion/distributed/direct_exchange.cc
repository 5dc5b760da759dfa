#include "medfusion/distributed/direct_exchange.h"

#include <mutex>
#include <utility>
#include <vector>

#include "medfusion/distributed/exchange.h"

namespace medfusion {
namespace {

// Of a small collective: the caller finishes it.
constexpr int64_t kSmallBytes = 256 * 1024;

// Whether all-reduce sends every rank the whole tensor.
bool ReducesWhole(int64_t bytes, int size) { return bytes * (size - 1) <= kSmallBytes; }

}  // namespace

DirectExchange::DirectExchange(std::unique_ptr<Transport> transport, int rank, int size)
    : room_(std::make_shared<ExchangeRoom>(std::move(transport), rank, size)) {}

DirectExchange::~DirectExchange() {
  room_->thread.Stop(/*abort=*/!failure().empty());
  std::vector<std::shared_ptr<Exchange>> failed;
  std::lock_guard lock(room_->mutex);
  failed.swap(room_->failed);
}

std::shared_ptr<Task> DirectExchange::Begin(std::shared_ptr<Exchange> exchange, bool background) {
  exchange->Begin();
  if (background) exchange->LeaveToBackground();
  return exchange;
}

std::shared_ptr<Task> DirectExchange::AllGather(const at::Tensor& output, const at::Tensor& input) {
  return Begin(MakeGather(room_, output, input), NumBytes(output) > kSmallBytes);
}

std::shared_ptr<Task> DirectExchange::ReduceScatter(const at::Tensor& output,
                                                    const at::Tensor& input, ReduceOp op) {
  return Begin(MakeReduceScatter(room_, output, input, op), NumBytes(input) > kSmallBytes);
}

std::shared_ptr<Task> DirectExchange::AllReduce(const at::Tensor& tensor, ReduceOp op) {
  if (ReducesWhole(NumBytes(tensor), room_->size)) {
    return Begin(MakeWholeReduce(room_, tensor, op), /*background=*/false);
  }
  // In the background whatever its size: the others wait for what this rank reduces.
  return Begin(MakePartsReduce(room_, tensor, op), /*background=*/true);
}

int64_t DirectExchange::AllReduceBytesSent(int64_t bytes, int size) {
  return ReducesWhole(bytes, size) ? bytes * (size - 1) : 2 * bytes * (size - 1) / size;
}

std::string DirectExchange::failure() const {
  std::lock_guard lock(room_->mutex);
  return room_->failure;
}

}  // namespace medfusion
