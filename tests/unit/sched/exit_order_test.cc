#include "local/base/exit_order.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace exit_order_test {

using adaptdl::sched::ExitOrder;

TEST_CASE("processes are ordered by when they exited, even if the order is queried later") {
  ExitOrder order;
  std::array<pid_t, 5> children{};
  for (pid_t& child : children) {
    child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    order.watch(child);
  }
  const std::array<std::size_t, 5> ending = {3, 0, 4, 1, 2};
  for (const std::size_t index : ending) {
    ::kill(children[index], SIGKILL);
    siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(children[index]), &info, WEXITED | WNOWAIT) == 0);
  }
  for (std::size_t place = 0; place < ending.size(); ++place) CHECK(order.place(children[ending[place]]) == place);
  CHECK(order.place(::getpid()) == ending.size());
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
}

}  // namespace exit_order_test
