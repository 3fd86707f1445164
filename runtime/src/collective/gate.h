// The door of rank 0: accepts connections, hears who they are, and keeps strangers from the job.
//
// A connection is a stranger until its Hello is complete and fits. A stranger costs one descriptor and at most a
// kilobyte, for five seconds; there are never more than a bounded number of them, and none makes anybody wait.
// Threading: none of its own; rank 0 guards it.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "adaptdl/collective.h"
#include "collective/wire.h"
#include "socket.h"

namespace adaptdl::collective {

class Gate {
 public:
  // Asked of each Hello of this job and size: takes `fd` as the link of that rank, or says why not. It is called before
  // the answer is sent on `fd`, so that nothing else goes out on it first.
  using Admit = std::function<std::string(const wire::Hello& hello)>;
  using Admitted = std::function<void(int rank, net::Fd fd, std::string from)>;

  Gate(const Options& options, net::Fd listener, int epoll, Admit admit, Admitted admitted);
  ~Gate() { close(); }

  // Events of descriptors that the gate put into `epoll` carry this flag and the descriptor.
  static constexpr std::uint64_t kTag = std::uint64_t{1} << 32;
  void on_event(std::uint64_t data);
  // Drops strangers that took too long, and resumes accepting after a shortage of descriptors.
  void on_tick(net::Clock::time_point now);
  // Why the last one that spoke our protocol was refused, or "".
  const std::string& last_refusal() const noexcept { return last_refusal_; }
  void close() noexcept;

 private:
  struct Stranger {
    net::Fd fd;
    std::string from;
    std::string heard;
    net::Clock::time_point deadline;
  };

  void accept_all();
  void watch(int fd);
  void hear(std::map<int, Stranger>::iterator stranger);
  void judge(std::map<int, Stranger>::iterator stranger, const wire::Hello& hello);
  std::string objection(const wire::Hello& hello) const;

  const Options& options_;
  net::Fd listener_;
  int epoll_;
  Admit admit_;
  Admitted admitted_;
  std::map<int, Stranger> strangers_;  // by descriptor
  bool accepting_ = true;
  std::string last_refusal_;
};

}  // namespace adaptdl::collective
