// Messages over c10d's send and recv. Internal.
#ifndef MEDFUSION_DISTRIBUTED_C10D_TRANSPORT_H_
#define MEDFUSION_DISTRIBUTED_C10D_TRANSPORT_H_

#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "medfusion/distributed/transport.h"

namespace medfusion {

// `mutex` guards every call of the backend, the transport's and others'; it outlives the transport.
//
// Note [Messages over Gloo]
// c10d hands a message to Gloo in place: no copy and no worker thread; Gloo's event loop moves the
// bytes, and nothing moves until the receive is posted. Gloo itself is thread safe, c10d's counters
// are not, hence the mutex. Tags are below 2^31; the collectives of c10d have a prefix in the top
// bits of theirs, so the two never meet. A timeout closes all connections of the group, so that
// every other wait ends as well.
std::unique_ptr<Transport> MakeC10dTransport(c10::intrusive_ptr<c10d::Backend> backend,
                                             std::mutex& mutex);

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_C10D_TRANSPORT_H_
