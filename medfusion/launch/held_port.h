// A free TCP port that stays ours until rank 0 listens at it.
#ifndef MEDFUSION_LAUNCH_HELD_PORT_H_
#define MEDFUSION_LAUNCH_HELD_PORT_H_

#include <absl/status/statusor.h>

#include <utility>

namespace medfusion {

// Note [Holding a port]
// A port that was found free by binding port 0 and closing the socket may be given to another
// process before rank 0 listens. So the socket stays bound, without listening, as long as the job
// runs: Linux then gives the port to nobody who asks for any port, but lets rank 0's socket, which
// has SO_REUSEADDR as this one has, bind it and listen.
class HeldPort {
 public:
  // Of 127.0.0.1. Unavailable when there is none.
  static absl::StatusOr<HeldPort> Find();

  ~HeldPort();
  HeldPort(HeldPort&& other) noexcept : fd_(std::exchange(other.fd_, -1)), port_(other.port_) {}
  HeldPort& operator=(HeldPort&&) = delete;

  int port() const { return port_; }

 private:
  HeldPort(int fd, int port) : fd_(fd), port_(port) {}

  int fd_;
  int port_;
};

}  // namespace medfusion

#endif  // MEDFUSION_LAUNCH_HELD_PORT_H_
