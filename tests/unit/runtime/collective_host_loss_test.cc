// Tests the loss of a host, whose packets simply stop. Runs in its own network namespace, whose only interface is taken
// down; skipped (exit status 77) if the kernel does not permit that.
#include <doctest/doctest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <latch>

#include "base/socket.h"
#include "collective_support.h"

namespace collective_host_loss_test {

using namespace adaptdl::collective;
using namespace adaptdl::collective::testing;
using nlohmann::json;

namespace {

void set_network(bool up) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  CHECK(::ioctl(fd, SIOCGIFFLAGS, &request) == 0);
  request.ifr_flags = static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
  CHECK(::ioctl(fd, SIOCSIFFLAGS, &request) == 0);
  ::close(fd);
}

void lose_host() {
  if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    MESSAGE("skipped: no permission for a network namespace");
    std::_Exit(77);
  }
  set_network(true);
  Options options = test_options(2);
  options.timeout = 10min;
  std::latch lost(1);
  Clock::time_point began;
  const auto errors = run_threads(options, [&](Communicator& communicator) {
    communicator.allreduce(json(1));
    if (communicator.rank() == 0) {
      began = Clock::now();
      set_network(false);
      lost.count_down();
      communicator.allreduce(json(1));  // waits for a value; keepalive detects the loss
    } else {
      lost.wait();
      communicator.allreduce(json(1));  // sends a value that is never acknowledged
    }
  });
  CHECK(errors == std::vector<std::string>{"replica 1 left the job during allreduce #2 (its host does not answer)",
                                           "replica 0 left the job during allreduce #2 (its host does not answer)"});
  CHECK(Clock::now() - began < 40s);
}

}  // namespace

TEST_CASE("collective calls fail on both hosts if the network between them fails silently") {
  adaptdl::net::patience = {.idle_seconds = 1, .interval_seconds = 1, .probes = 2, .retransmits = 3};
  lose_host();
  adaptdl::net::patience = {};
}

TEST_CASE("an unresponsive host is detected within 40 s by default" * doctest::test_suite("full")) { lose_host(); }

}  // namespace collective_host_loss_test
