// What one direct exchange is made of, and what those of a group share. Internal to this target.
#ifndef MEDFUSION_DISTRIBUTED_EXCHANGE_H_
#define MEDFUSION_DISTRIBUTED_EXCHANGE_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "medfusion/distributed/reduce_op.h"
#include "medfusion/distributed/task.h"
#include "medfusion/distributed/transport.h"

namespace medfusion {

class Exchange;

struct ExchangeRoom {
  ExchangeRoom(std::unique_ptr<Transport> transport, int rank, int size);

  // Memory of at least `bytes`, from exchanges that have given theirs back. Thread safe.
  at::Tensor TakeScratch(int64_t bytes);
  void GiveBack(at::Tensor scratch);

  const std::unique_ptr<Transport> transport;
  const int rank;
  const int size;
  int next_tag = 0;  // two for each exchange; of the rank's own thread
  TaskThread thread;

  std::mutex mutex;  // of all below
  std::vector<at::Tensor> free_scratch;
  std::string failure;
  // Failed exchanges: their messages may still be under way, so their memory stays.
  std::vector<std::shared_ptr<Exchange>> failed;
};

class Exchange : public Task, public std::enable_shared_from_this<Exchange> {
 public:
  // Chunks of each peer that may be under way to this rank. Not all, because what the kernel holds
  // falls out of the caches, and takes twice as long.
  static constexpr int64_t kDepth = 3;
  using Transfers = std::vector<std::unique_ptr<Transfer>>;

  // `tensors` outlive the messages.
  Exchange(std::shared_ptr<ExchangeRoom> room, std::vector<at::Tensor> tensors);

  // Once, before anything else. Throws what the transport throws.
  void Begin();

  void LeaveToBackground() override { room_->thread.Add(shared_from_this()); }
  void Abort() override;

 protected:
  // Posts what can be, without blocking.
  virtual void Post() = 0;
  // Does the rest.
  virtual void Complete() = 0;

  ExchangeRoom& room() const { return *room_; }
  int rank() const { return room_->rank; }
  int size() const { return room_->size; }
  // Another rank: 1 is the next, size() - 1 the previous. Ranks that all go by the distance do not
  // all begin with the same peer.
  int Peer(int distance) const { return (room_->rank + distance) % room_->size; }

  // Messages of no bytes are not sent. There are two lanes, 0 and 1; each keeps its own order.
  void Send(const std::byte* data, int64_t bytes, int peer, int lane = 0);
  std::unique_ptr<Transfer> Receive(std::byte* data, int64_t bytes, int peer, int lane = 0);

  // Waits for all, and clears the list.
  void Await(Transfers& transfers);
  // Waits until the memory of all that was sent may be written.
  void AwaitSends() { Await(sends_); }

 private:
  void Body() final;
  void Await(Transfer& transfer);
  // In a handler: the group has failed by the current exception.
  void Bury();

  const std::shared_ptr<ExchangeRoom> room_;
  const int tag_;
  const std::vector<at::Tensor> tensors_;
  Transfers sends_;
  std::mutex waiting_mutex_;
  Transfer* waiting_ = nullptr;
  bool aborted_ = false;
};

inline std::byte* Bytes(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}
inline int64_t NumBytes(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

// The kinds of exchange, Note [Direct exchange].
std::shared_ptr<Exchange> MakeGather(std::shared_ptr<ExchangeRoom> room, const at::Tensor& output,
                                     const at::Tensor& input);
// All-reduce by sending everybody the whole tensor.
std::shared_ptr<Exchange> MakeWholeReduce(std::shared_ptr<ExchangeRoom> room,
                                          const at::Tensor& tensor, ReduceOp op);
std::shared_ptr<Exchange> MakeReduceScatter(std::shared_ptr<ExchangeRoom> room,
                                            const at::Tensor& output, const at::Tensor& input,
                                            ReduceOp op);
// All-reduce by reduce-scatter and gathering.
std::shared_ptr<Exchange> MakePartsReduce(std::shared_ptr<ExchangeRoom> room,
                                          const at::Tensor& tensor, ReduceOp op);

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_EXCHANGE_H_
