// Point-to-point messages among the ranks of a group: what direct exchanges are made of. Internal.
#ifndef MEDFUSION_DISTRIBUTED_TRANSPORT_H_
#define MEDFUSION_DISTRIBUTED_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace medfusion {

// A message on its way. The memory must stay until Wait() has returned or the transfer is
// destroyed.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // Blocks until a received message has arrived, or the memory of a sent one may be reused; at most
  // for the group's timeout. Throws what the transport throws. Call it once.
  virtual void Wait() = 0;

  // Ends a Wait() that blocks in another thread with an exception.
  virtual void Abort() = 0;
};

// Thread safe.
class Transport {
 public:
  virtual ~Transport() = default;

  // Both start at once and go on in the background. Between two ranks, the messages with one tag
  // arrive in the order in which they were sent, into receives in the order in which they were
  // posted, and must have the receives' sizes. At least one byte.
  virtual std::unique_ptr<Transfer> Send(const std::byte* data, int64_t bytes, int peer,
                                         int tag) = 0;
  virtual std::unique_ptr<Transfer> Receive(std::byte* data, int64_t bytes, int peer, int tag) = 0;
};

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_TRANSPORT_H_
