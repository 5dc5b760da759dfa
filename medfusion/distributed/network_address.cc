#include "medfusion/distributed/network_address.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

namespace medfusion {
namespace {

std::string Numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Lookup(const std::string& host, int socket_type) {
  addrinfo hints{};
  hints.ai_socktype = socket_type;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), "1", &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("does not resolve: ", gai_strerror(error)));
  }
  return AddressList(found, freeaddrinfo);
}

absl::StatusOr<std::string> AddressOfInterface(const std::string& interface) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return absl::InternalError(std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || interface != one->ifa_name) continue;
    if (one->ifa_addr->sa_family == AF_INET) return Numeric(one->ifa_addr, sizeof(sockaddr_in));
    if (one->ifa_addr->sa_family == AF_INET6) return Numeric(one->ifa_addr, sizeof(sockaddr_in6));
  }
  return absl::NotFoundError(absl::StrCat("GLOO_SOCKET_IFNAME=", interface,
                                          " (environment): this host has no such interface with "
                                          "an address; see `ip address`"));
}

}  // namespace

absl::StatusOr<ResolvedAddress> ResolveHost(const std::string& host) {
  const auto found = Lookup(host, SOCK_STREAM);
  if (!found.ok()) return found.status();
  const addrinfo* first = found->get();
  return ResolvedAddress{Numeric(first->ai_addr, first->ai_addrlen), first->ai_family == AF_INET6,
                         IsLoopback(first->ai_addr)};
}

absl::StatusOr<std::string> LocalAddressTowards(const ResolvedAddress& peer,
                                                const std::string& interface) {
  if (!interface.empty()) return AddressOfInterface(interface.substr(0, interface.find(',')));
  if (peer.loopback) return peer.ipv6 ? "::1" : "127.0.0.1";
  const auto found = Lookup(peer.numeric, SOCK_DGRAM);
  if (!found.ok()) return found.status();
  // Connecting a datagram socket sends nothing; it makes the kernel choose the route.
  const int fd = socket((*found)->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::InternalError(std::strerror(errno));
  sockaddr_storage local{};
  socklen_t length = sizeof(local);
  const bool ok = connect(fd, (*found)->ai_addr, (*found)->ai_addrlen) == 0 &&
                  getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0;
  const int error = errno;
  close(fd);
  if (!ok) {
    return absl::UnavailableError(
        absl::StrCat("no route to ", peer.numeric, ": ", std::strerror(error)));
  }
  return Numeric(reinterpret_cast<const sockaddr*>(&local), length);
}

absl::StatusOr<int> Listen(int port, const ResolvedAddress& at) {
  const int fd = socket(at.ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::InternalError(std::strerror(errno));
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage address{};
  socklen_t length = 0;
  if (at.ipv6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    v6->sin6_addr = in6addr_any;
    if (at.loopback) inet_pton(AF_INET6, at.numeric.c_str(), &v6->sin6_addr);
    length = sizeof(*v6);
  } else {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    v4->sin_addr.s_addr = htonl(INADDR_ANY);
    if (at.loopback) inet_pton(AF_INET, at.numeric.c_str(), &v4->sin_addr);
    length = sizeof(*v4);
  }
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(fd, 2048) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  if (error == EADDRINUSE) return absl::AlreadyExistsError("is in use by another process");
  return absl::UnavailableError(absl::StrCat("cannot be listened at: ", std::strerror(error)));
}

std::string HostIdentity() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return absl::StrCat(name, "/", boot);
}

}  // namespace medfusion
