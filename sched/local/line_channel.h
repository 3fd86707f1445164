// LineChannel exchanges messages with another process: JSON objects, one per line, over a pair of pipes or a socket.
//
// Threading: one thread at a time.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "local/fd.h"
#include "local/lines.h"

namespace adaptdl::sched {

class LineChannel {
 public:
  // The maximum length of a message in bytes: a line of a replica's output (LineSplitter::kMaxLine) with every byte
  // escaped, and what surrounds it.
  static constexpr std::size_t kMaxMessage = std::size_t{8} << 20;

  // Both descriptors become non-blocking; they may be the same file. Throws Error if that fails.
  LineChannel(Fd in, Fd out);

  // Readable when receive() has something to do; -1 once the channel is closed.
  int fd() const noexcept { return in_.get(); }
  // Adds the descriptors to poll.
  void add_to(std::vector<pollfd>& polled) const;
  // Sends a message as soon as the other process accepts it.
  void send(const nlohmann::json& message);
  // Sends as much as is accepted without blocking.
  void write();
  // Returns whether so much waits to be sent that the caller should add no output of replicas.
  bool congested() const noexcept { return outgoing_.size() - written_ > kCongested; }
  // Passes on the messages that have arrived. Returns false once the other process has closed the channel, or has sent
  // a line that is not a JSON object.
  bool receive(const std::function<void(const nlohmann::json&)>& sink);
  // Waits until there is something to receive, the channel is closed, or the time is over.
  void wait(std::chrono::milliseconds limit) const;

 private:
  static constexpr std::size_t kCongested = std::size_t{4} << 20;  // bytes

  Fd in_, out_;
  LineSplitter lines_{kMaxMessage};
  std::string outgoing_;
  std::size_t written_ = 0;  // of outgoing_
  bool valid_ = true;
};

}  // namespace adaptdl::sched
