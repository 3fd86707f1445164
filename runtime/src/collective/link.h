// One connection of the star: frames out of what comes in, and a queue of what the kernel has not taken yet.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collective/wire.h"
#include "socket.h"

namespace adaptdl::collective {

class Link {
 public:
  Link(net::Fd fd, std::uint64_t max_payload) : fd_(std::move(fd)), reader_(max_payload) {}

  int fd() const noexcept { return fd_.get(); }
  bool open() const noexcept { return static_cast<bool>(fd_); }
  void close() noexcept { fd_.reset(); }

  // Queues a frame; a payload may be shared between links.
  void queue(const wire::Frame& header, std::shared_ptr<const Bytes> payload);
  std::size_t queued_bytes() const noexcept { return queued_bytes_; }

  // Sends as much of the queue as the kernel takes. False when the connection is lost: then `why()` tells.
  bool send_some();

  // Receives what has come, one buffer at most; `bytes` stays valid until the next call. False at the end of the stream
  // or when the connection is lost: then `why()` tells. True with empty `bytes` when nothing has come.
  bool receive(std::string_view& bytes);

  // The next frame in `bytes`, which it consumes. Throws CollectiveError as FrameReader does.
  std::optional<wire::Frame> take(std::string_view& bytes) { return reader_.take(bytes); }

  const std::string& why() const noexcept { return why_; }

  // For a close without loss: says that nothing more will be sent. Call when the queue is empty.
  void finish_sending() noexcept;
  // Bytes that the other host has not acknowledged.
  std::size_t unacknowledged() const noexcept;

 private:
  struct Out {
    std::string head;
    std::shared_ptr<const Bytes> payload;
    std::size_t sent = 0;
    std::size_t size() const { return head.size() + payload->size(); }
  };

  bool lost(int error);

  net::Fd fd_;
  wire::FrameReader reader_;
  std::deque<Out> queue_;
  std::size_t queued_bytes_ = 0;
  std::string why_;
};

// How long delivery at the end may be without progress. Tests lengthen it.
inline std::chrono::milliseconds linger_stall{1000};

// Delivers what is still queued, then closes each connection once the other host has it all: a plain close could take
// results with it that a peer has not read yet. Gives up after linger_stall.
void deliver_and_close(const std::vector<Link*>& links);

}  // namespace adaptdl::collective
