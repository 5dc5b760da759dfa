#include "tests/testing/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "medfusion/distributed/network_address.h"

namespace medfusion::testing {

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

int FreePort(bool ipv6) {
  const int fd = Listen(0, ResolveHost(ipv6 ? "::1" : "127.0.0.1").value()).value();
  const int port = PortOf(fd);
  close(fd);
  return port;
}

}  // namespace medfusion::testing
