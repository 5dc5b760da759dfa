// A free TCP port.
#ifndef MEDFUSION_TESTS_TESTING_FREE_PORT_H_
#define MEDFUSION_TESTS_TESTING_FREE_PORT_H_

namespace medfusion::testing {

// Of the loopback interface. Held until this process ends: nobody who asks for any port is given
// it, but who names it may listen at it (SO_REUSEADDR). Note [Holding a port].
int FreePort(bool ipv6 = false);

// The port at which the socket `fd` listens.
int PortOf(int fd);

}  // namespace medfusion::testing

#endif  // MEDFUSION_TESTS_TESTING_FREE_PORT_H_
