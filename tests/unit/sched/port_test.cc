#include "local/base/port.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <set>

#include "base/fd.h"
#include "temporary_directory.h"

namespace port_test {

using namespace adaptdl;

TEST_CASE("a free port is outside the kernel's ephemeral range") {
  const auto [first, last] = sched::ephemeral_ports();
  std::set<int> seen;
  for (int i = 0; i < 50; ++i) {
    const int port = sched::ReservedPort().number();
    CHECK((port < first || port > last));
    CHECK(port >= 10000);
    seen.insert(port);
  }
  CHECK(seen.size() > 40);  // chosen at random
}

TEST_CASE("a free port can be bound on any address immediately") {
  const int port = sched::ReservedPort().number();
  const adaptdl::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<std::uint16_t>(port));
  CHECK(::bind(socket.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) == 0);
}

TEST_CASE("a port that is in use on one address is not returned") {
  // All ports but a few are passed as ephemeral, and one of the few is in use.
  const adaptdl::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int taken = 0;
  for (int port = 65532; port <= 65535 && taken == 0; ++port) {
    loopback.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0) taken = port;
  }
  REQUIRE(taken != 0);
  for (int i = 0; i < 20; ++i) CHECK(sched::ReservedPort({1, 65531}).number() != taken);
}

TEST_CASE("no two ports that are reserved at the same time are equal") {
  const sched::ReservedPort first({1, 65531});
  for (int i = 0; i < 20; ++i) CHECK(sched::ReservedPort({1, 65531}).number() != first.number());
}

TEST_CASE("if all ports are ephemeral, the kernel chooses a port") { CHECK(sched::ReservedPort({1, 65535}).number() > 0); }

TEST_CASE("a missing or invalid ephemeral range falls back to the default") {
  const testing::TemporaryDirectory directory;
  CHECK(sched::ephemeral_ports(directory.path() / "nothing") == std::pair(32768, 60999));
  std::ofstream(directory.path() / "range") << "15000\t61000\n";
  CHECK(sched::ephemeral_ports(directory.path() / "range") == std::pair(15000, 61000));
  std::ofstream(directory.path() / "broken") << "61000 15000\n";
  CHECK(sched::ephemeral_ports(directory.path() / "broken") == std::pair(32768, 60999));
}

}  // namespace port_test
