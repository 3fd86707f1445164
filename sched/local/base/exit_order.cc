#include "local/base/exit_order.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace adaptdl::sched {

ExitOrder::ExitOrder() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

void ExitOrder::watch(pid_t pid) {
  Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd) return;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;
  event.data.u64 = static_cast<std::uint64_t>(pid);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0) watched_.emplace(pid, std::move(fd));
}

void ExitOrder::update() {
  epoll_event event{};
  // Fetching one event at a time keeps the kernel's order, however many events there are.
  while (::epoll_wait(epoll_.get(), &event, 1, 0) == 1) {
    const auto pid = static_cast<pid_t>(event.data.u64);
    ended_.push_back(pid);
    watched_.erase(pid);
  }
}

std::size_t ExitOrder::place(pid_t pid) {
  update();
  return static_cast<std::size_t>(std::ranges::find(ended_, pid) - ended_.begin());
}

}  // namespace adaptdl::sched
