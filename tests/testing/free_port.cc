#include "tests/testing/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

namespace medfusion::testing {

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

int FreePort(bool ipv6) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_loopback;
  const int on = 1;
  const int fd = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int bound = ipv6 ? bind(fd, reinterpret_cast<sockaddr*>(&v6), sizeof(v6))
                         : bind(fd, reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
  if (bound != 0) throw std::system_error(errno, std::generic_category(), "no free port");
  return PortOf(fd);
}

}  // namespace medfusion::testing
