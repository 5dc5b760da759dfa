// Names and addresses of this host and of the meeting point. Internal.
#ifndef MEDFUSION_DISTRIBUTED_NETWORK_ADDRESS_H_
#define MEDFUSION_DISTRIBUTED_NETWORK_ADDRESS_H_

#include <absl/status/statusor.h>

#include <string>

namespace medfusion {

struct ResolvedAddress {
  std::string numeric;  // "10.0.0.7", "fe80::1"
  bool ipv6 = false;
  bool loopback = false;
};

// The first address of `host`. Unavailable, with the resolver's reason, when there is none.
absl::StatusOr<ResolvedAddress> ResolveHost(const std::string& host);

// The address of this host from which packets to `peer` leave: loopback when the peer is.
// `interface` names a network interface to take instead (GLOO_SOCKET_IFNAME); NotFound when it has
// no address.
absl::StatusOr<std::string> LocalAddressTowards(const ResolvedAddress& peer,
                                                const std::string& interface);

// A TCP socket that listens at `port` (0: any free one) of `at` when that is a loopback address,
// else of all interfaces of its family. AlreadyExists when the port is taken. The caller owns the
// descriptor.
absl::StatusOr<int> Listen(int port, const ResolvedAddress& at);

// The same on all processes of one running host, different on different hosts.
std::string HostIdentity();

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_NETWORK_ADDRESS_H_
