// Collectives as direct messages from every rank to every other, in place, summed in rank order.
// Internal.
//
// Note [Direct exchange]
// All-gather: every rank sends its part to every other, straight into the output's storage there.
// Reduce-scatter: every rank sends every other its part, in chunks. A chunk of all ranks is reduced
// while the next ones arrive; that takes scratch for three chunks of each peer, whatever the size.
// All-reduce: a small tensor goes to all ranks whole, and each reduces it; a large one is reduced
// and scattered, and every reduced chunk goes out at once to all, into its place.
// What a rank has to send is posted when it calls, or by a thread that runs anyway: a rank that
// waits depends on the others' calls, not on their waits, and collectives that all ranks start in
// one order cannot block each other. A sum is formed in rank order from whole chunks: the bits do
// not depend on who comes first.
//
// Note [Who finishes a collective]
// The bytes move by themselves, but somebody must reduce, and see that all has arrived. For a large
// collective that is the group's communication thread, so that it overlaps with the caller's
// compute. For a small one a thread's wake-up costs more than the work: the caller does it in
// Wait(), unless it asks IsCompleted() or drops the Work before. A Wait() that comes before the
// thread began does it, too.
#ifndef MEDFUSION_DISTRIBUTED_DIRECT_EXCHANGE_H_
#define MEDFUSION_DISTRIBUTED_DIRECT_EXCHANGE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "medfusion/distributed/reduce_op.h"
#include "medfusion/distributed/task.h"
#include "medfusion/distributed/transport.h"

namespace medfusion {

class Exchange;
struct ExchangeRoom;

// Tensors are dense, contiguous, on the CPU, and stay alive with the tasks. Ranks call in the same
// order. A task that fails makes the exchange unusable: later ones fail, too.
class DirectExchange {
 public:
  // `size` is two or more.
  DirectExchange(std::unique_ptr<Transport> transport, int rank, int size);
  // Blocks until what was started is done, or the transport has given up.
  ~DirectExchange();

  // `input` may be this rank's part of `output`.
  std::shared_ptr<Task> AllGather(const at::Tensor& output, const at::Tensor& input);
  // `output` may be this rank's part of `input`.
  std::shared_ptr<Task> ReduceScatter(const at::Tensor& output, const at::Tensor& input,
                                      ReduceOp op);
  std::shared_ptr<Task> AllReduce(const at::Tensor& tensor, ReduceOp op);
  // What AllReduce sends from each rank.
  static int64_t AllReduceBytesSent(int64_t bytes, int size);

  // Why it is unusable; empty while it is not.
  std::string failure() const;

 private:
  std::shared_ptr<Task> Begin(std::shared_ptr<Exchange> exchange, bool background);

  std::shared_ptr<ExchangeRoom> room_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_DIRECT_EXCHANGE_H_
