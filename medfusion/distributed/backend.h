// Backends by name: what turns a store into a c10d::Backend.
//
// A backend registers itself from its own target, so that a program holds only those it links.
#ifndef MEDFUSION_DISTRIBUTED_BACKEND_H_
#define MEDFUSION_DISTRIBUTED_BACKEND_H_

#include <absl/status/statusor.h>
#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace medfusion {

struct BackendRequest {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{};
  // Where this rank's sockets bind: a local address, or empty for the loopback interface.
  std::string local_address;
  // This rank's GPU.
  int device_index = 0;
};

struct BackendKind {
  std::string name;
  c10::DeviceType device_type;
  // Blocks until all ranks are connected; throws what c10d throws.
  std::function<c10::intrusive_ptr<c10d::Backend>(const BackendRequest&)> create;
  // True when this machine can serve `local_world_size` ranks (NCCL: a GPU for each).
  std::function<bool(int local_world_size)> available;
};

// For static initialisers: `static const bool registered = RegisterBackend({...});`
bool RegisterBackend(BackendKind kind);

// NotFound, listing the linked backends, when there is none of that name.
absl::StatusOr<BackendKind> FindBackend(std::string_view name);

// Resolves "auto": "nccl" when it is linked and each local rank has a GPU, else "gloo". Other names
// must be linked and available, else an error that lists what is.
absl::StatusOr<std::string> ChooseBackend(std::string_view name, int local_world_size);

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_BACKEND_H_
