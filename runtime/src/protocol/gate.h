// Accepts connections on a listener and admits those that prove that they belong to the job.
//
// A connection is pending until its handshake is complete and its request is accepted. A pending connection occupies
// one descriptor and the memory for one request, for a few seconds at most. The number of pending connections is
// limited: at the limit, each new connection replaces the oldest one. A replica whose connection was closed in this way
// tries again.
//
// Threading: the owner must make sure that only one thread at a time uses the object.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/socket.h"
#include "protocol/handshake.h"

namespace adaptdl {

class Gate {
 public:
  struct Verdict {
    std::string answer;
    // Called with the connection after the answer has been sent on it. If empty, the connection is closed.
    std::function<void(Fd fd)> admit;
    // Why the connection is closed, for last_refusal().
    std::string refusal = {};
  };
  // Decides on each request whose proof is valid; `from` is the sender's address.
  using Judge = std::function<Verdict(std::string_view request, const std::string& from)>;

  struct Options {
    handshake::Terms terms;
    std::size_t max_request = 0;      // bytes
    std::size_t max_pending = 256;    // at the same time
    std::chrono::milliseconds handshake_time = std::chrono::seconds(5);
  };

  // Throws Error if the process has no descriptors left, or if libcrypto, which proofs require, is missing.
  Gate(Options options, Fd listener, Judge judge);

  // A descriptor that is readable when serve() has something to do.
  int fd() const noexcept { return epoll_.get(); }
  // Handles all pending events; never waits.
  void serve();
  // Must be called once per second. Drops pending connections that have taken too long, and resumes accepting
  // connections if it had stopped because no descriptors were left.
  void on_tick(net::Clock::time_point now);
  // The reason for the last refusal of a connection that used this protocol, with its address; "" if none was refused.
  const std::string& last_refusal() const noexcept { return last_refusal_; }
  // Closes the listener and drops all pending connections. Idempotent.
  void close() noexcept;

 private:
  struct Pending {
    Fd fd;
    std::string from;
    handshake::AcceptingEnd end;
    net::Clock::time_point deadline;
  };
  using PendingMap = std::map<int, Pending>;  // by descriptor

  void accept_all();
  void watch(int fd);
  void receive(PendingMap::iterator pending);
  void judge(PendingMap::iterator pending);
  void refuse(const std::string& from, const std::string& why);

  const Options options_;
  Fd epoll_;
  Fd listener_;
  const Judge judge_;
  PendingMap pending_;
  bool accepting_ = true;
  std::string last_refusal_;
};

}  // namespace adaptdl
