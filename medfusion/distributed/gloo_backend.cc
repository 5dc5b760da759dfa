// The CPU backend: Gloo over TCP, as LibTorch carries it.
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "medfusion/distributed/backend.h"

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

c10::intrusive_ptr<c10d::Backend> CreateGloo(const BackendRequest& request) {
  auto options = c10d::ProcessGroupGloo::Options::create(request.timeout);
  const std::string address = request.local_address.empty() ? "127.0.0.1" : request.local_address;
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(request.store, request.rank, request.size,
                                                     options);
}

const bool registered [[maybe_unused]] = RegisterBackend(
    {"gloo", c10::DeviceType::CPU, CreateGloo, [](int /*local_world_size*/) { return true; }});

}  // namespace
}  // namespace medfusion
