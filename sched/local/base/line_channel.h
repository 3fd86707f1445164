// LineChannel exchanges messages with another process: JSON objects, one per line, over a pair of pipes or a socket.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/fd.h"
#include "local/base/lines.h"

namespace adaptdl::sched {

class LineChannel {
 public:
  // The maximum length of a message in bytes: enough for a line of a replica's output (LineSplitter::kMaxLine) with
  // every byte escaped, plus the rest of the message.
  static constexpr std::size_t kMaxMessage = std::size_t{8} << 20;

  // Makes both descriptors non-blocking; they may refer to the same socket. Throws Error if that fails.
  LineChannel(Fd in, Fd out);

  // Returns a descriptor that is readable when receive() has work to do, or -1 once the channel is closed.
  int fd() const noexcept { return in_.get(); }
  // Adds the channel's descriptors to `polled`.
  void add_to(std::vector<pollfd>& polled) const;
  // Sends a message without blocking. The part that the other process does not accept yet is kept for write().
  void send(const nlohmann::json& message);
  // Sends as much of the kept data as possible without blocking.
  void write();
  std::size_t pending() const noexcept { return outgoing_.size() - written_; }  // in bytes
  // Returns whether so much data is pending that the caller should not send more replica output.
  bool congested() const noexcept { return pending() > kCongested; }
  // Passes the messages that have arrived to `sink`. Returns false once the other process has closed the channel or
  // sent a line that is not a JSON object.
  bool receive(const std::function<void(const nlohmann::json&)>& sink);
  // Waits until data arrives, the channel is closed, or `limit` has passed.
  void wait(std::chrono::milliseconds limit) const;

 private:
  static constexpr int kPipeSize = 256 << 10;                      // bytes
  static constexpr std::size_t kCongested = std::size_t{4} << 20;  // bytes

  Fd in_, out_;
  LineSplitter lines_{kMaxMessage};
  std::string outgoing_;
  std::size_t written_ = 0;  // number of bytes of outgoing_ that have been written
  bool valid_ = true;
};

}  // namespace adaptdl::sched
