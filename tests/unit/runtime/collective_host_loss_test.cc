// A host that vanishes without a word: packets just stop. Runs in a network namespace of its own, whose only interface
// is taken down; is skipped (exit status 77) where the kernel does not permit that.
#include <doctest/doctest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>

#include "collective_support.h"

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

}  // namespace

TEST_CASE("a host that does not answer any more is an error on both sides within 40 s") {
  if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    MESSAGE("skipped: no permission for a network namespace");
    std::_Exit(77);
  }
  set_network(true);
  Options options = test_options(2);
  options.timeout = 10min;
  Clock::time_point cut;
  const auto errors = run_threads(options, [&](Communicator& communicator) {
    communicator.allreduce(json(1));
    if (communicator.rank() == 0) {
      std::this_thread::sleep_for(200ms);
      cut = Clock::now();
      set_network(false);
      communicator.allreduce(json(1));  // waits for what never comes: keepalive tells
    } else {
      std::this_thread::sleep_for(400ms);
      communicator.allreduce(json(1));  // waits for an answer to what is sent in vain
    }
  });
  CHECK(errors == std::vector<std::string>{"replica 1 left the job during allreduce #2 (its host does not answer)",
                                           "replica 0 left the job during allreduce #2 (its host does not answer)"});
  CHECK(Clock::now() - cut < 40s);
}
