#include "medfusion/launch/held_port.h"

#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace medfusion {

absl::StatusOr<HeldPort> HeldPort::Find() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      bind(fd, generic, length) == 0 && getsockname(fd, generic, &length) == 0) {
    return HeldPort(fd, ntohs(address.sin_port));
  }
  const int error = errno;
  if (fd >= 0) close(fd);
  return absl::UnavailableError(
      absl::StrCat("no free port at 127.0.0.1 for the ranks to meet at: ", std::strerror(error)));
}

HeldPort::~HeldPort() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace medfusion
