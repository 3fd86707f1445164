// One connection of the star. It splits the input into frames and queues output that the kernel has not accepted yet.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "collective/wire.h"

namespace adaptdl::collective {

class Link {
 public:
  Link(Fd fd, std::uint64_t max_payload) : fd_(std::move(fd)), reader_(max_payload) {}

  int fd() const noexcept { return fd_.get(); }
  bool open() const noexcept { return static_cast<bool>(fd_); }
  void close() noexcept { fd_.reset(); }

  // Queues a frame; a payload may be shared between links.
  void queue(const wire::Frame& header, std::shared_ptr<const Bytes> payload);
  std::size_t queued_bytes() const noexcept { return queued_bytes_; }

  // Sends as much of the queue as the kernel accepts. Returns false if the connection is lost; why() then returns the
  // reason.
  bool send_some();

  // Receives at most one buffer of data. `bytes` then refers to the data, which stays valid until this thread's next
  // call on any link; it is empty if nothing has arrived. Returns false at the end of the stream or if the connection
  // is lost; why() then returns the reason.
  bool receive(std::string_view& bytes);

  // Takes the next frame from `bytes`, in the same way as FrameReader::take.
  std::optional<wire::Frame> take(std::string_view& bytes) { return reader_.take(bytes); }

  const std::string& why() const noexcept { return why_; }

  // Signals that nothing more will be sent, so that closing the connection does not lose data. REQUIRES an empty queue.
  void finish_sending() noexcept;
  // Returns the number of bytes that the other host has not acknowledged.
  std::size_t unacknowledged() const noexcept;

 private:
  struct Out {
    std::string head;
    std::shared_ptr<const Bytes> payload;
    std::size_t sent = 0;
    std::size_t size() const { return head.size() + payload->size(); }
  };

  bool lost(int error);

  Fd fd_;
  wire::FrameReader reader_;
  std::deque<Out> queue_;
  std::size_t queued_bytes_ = 0;
  std::string why_;
};

// How long the final delivery may continue without progress. Tests increase it.
inline std::chrono::milliseconds linger_stall{1000};

// Delivers the queued data, and closes each connection once the other host has acknowledged everything: a plain close
// could discard results that a peer has not read yet. Gives up after linger_stall without progress.
void deliver_and_close(const std::vector<Link*>& links);

}  // namespace adaptdl::collective
