// The meeting of a job's ranks: the store that rank 0 serves, and the roll call in it. Internal to
// setup.
#ifndef MEDFUSION_DISTRIBUTED_RENDEZVOUS_H_
#define MEDFUSION_DISTRIBUTED_RENDEZVOUS_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>
#include <vector>

#include "medfusion/distributed/launch_environment.h"

namespace c10d {
class Store;
}

namespace medfusion {

struct Rendezvous {
  c10::intrusive_ptr<c10d::Store> store;  // this job's part of it
  std::vector<std::string> hosts;         // HostIdentity of each rank
  std::string local_address;              // for this rank's sockets
  bool serves_store = false;
};

// Connects to (on rank 0: serves) the store and returns when all ranks are there. Errors as of
// SetupDistributed. On an error that one rank alone can see, it is left in the store for the
// others.
absl::StatusOr<Rendezvous> Meet(const LaunchEnvironment& environment,
                                std::chrono::milliseconds timeout);

// Says good-bye; the rank that serves the store waits, at most for `patience`, until all have.
absl::Status Part(const Rendezvous& rendezvous, int rank, int world_size,
                  std::chrono::milliseconds patience);

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_RENDEZVOUS_H_
