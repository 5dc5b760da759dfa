// The CPU backend: Gloo over TCP, as LibTorch carries it.
#include <sched.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "medfusion/distributed/backend.h"
#include "medfusion/distributed/broken_pipe.h"

namespace medfusion {
namespace {

// Note [No flight recorder under Gloo]
// c10d records every collective in one buffer per process, and crashes in FlightRecorder::record
// now and then when several threads of a process use groups of their own (LibTorch 2.11). It reads
// its size once, from the environment, at the first collective. Set before main, while no other
// thread can read the environment; a value of the user's stays.
const bool recorder_off [[maybe_unused]] = [] {
  if (std::getenv("TORCH_NCCL_TRACE_BUFFER_SIZE") == nullptr) {
    setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
  }
  return true;
}();

// Note [Gloo's event loop does not preempt]
// A thread that posts a message holds the connection's lock, and Gloo's event loop, which polls by
// try_lock, spins until it gets it. When the loop is woken on the poster's core, it preempts the
// poster and spins away its time slice: 3 to 4 ms for a message that takes 0.1. A thread of
// SCHED_BATCH does not preempt when it is woken. The policy is inherited from the thread that makes
// the device. Where it may not be set, things work as before.
class BatchScheduling {
 public:
  BatchScheduling() : policy_(sched_getscheduler(0)) {
    if (policy_ == SCHED_OTHER) Set(SCHED_BATCH);
  }
  ~BatchScheduling() {
    if (policy_ == SCHED_OTHER) Set(SCHED_OTHER);
  }

 private:
  static void Set(int policy) {
    const sched_param none{};
    sched_setscheduler(0, policy, &none);
  }

  const int policy_;
};

c10::intrusive_ptr<c10d::Backend> CreateGloo(const BackendRequest& request) {
  IgnoreBrokenPipes();
  auto options = c10d::ProcessGroupGloo::Options::create(request.timeout);
  const std::string address = request.local_address.empty() ? "127.0.0.1" : request.local_address;
  {
    const BatchScheduling event_loop;
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  }
  return c10::make_intrusive<c10d::ProcessGroupGloo>(request.store, request.rank, request.size,
                                                     options);
}

const bool registered [[maybe_unused]] = RegisterBackend(
    {"gloo", c10::DeviceType::CPU, CreateGloo, [](int /*local_world_size*/) { return true; }});

}  // namespace
}  // namespace medfusion
