// A TCP port that was free a moment ago.
#ifndef MEDFUSION_TESTS_TESTING_FREE_PORT_H_
#define MEDFUSION_TESTS_TESTING_FREE_PORT_H_

namespace medfusion::testing {

int FreePort(bool ipv6 = false);

// The port at which the socket `fd` listens.
int PortOf(int fd);

}  // namespace medfusion::testing

#endif  // MEDFUSION_TESTS_TESTING_FREE_PORT_H_
