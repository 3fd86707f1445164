// OutputQueue holds text that is written only as fast as its reader accepts it.
//
// The descriptors stay in blocking mode, because other processes that share them do not expect non-blocking
// descriptors. Each write to a pipe therefore contains only as many bytes as poll(2) guarantees will be accepted.
// For a terminal, poll(2) guarantees only one byte, so a terminal is opened again, in non-blocking mode. A reader that
// stops reading thus delays only the text, not this process. Text keeps its order across both streams: if they are
// the same terminal or file, lines appear in the order in which they were queued.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "base/fd.h"

namespace adaptdl::cli {

class OutputQueue {
 public:
  static constexpr std::size_t kFull = std::size_t{4} << 20;  // bytes

  void put(int fd, std::string text);

  bool empty() const noexcept { return chunks_.empty(); }
  std::size_t size() const noexcept { return size_; }  // in bytes
  // Returns whether the queue holds so much text that callers should not add any more.
  bool full() const noexcept { return size_ >= kFull; }
  // Returns the descriptor of the first queued text, or -1 if the queue is empty.
  int fd() const noexcept { return chunks_.empty() ? -1 : chunks_.front().fd; }

  // Writes as much as is accepted without blocking. Drops text that is refused, for example by a full disk. If the
  // reader has gone, also drops all later text for it.
  void write_some();
  // Writes everything, and blocks until that is done.
  void write_all();

  // Returns whether the reader of a standard descriptor has gone.
  bool refused(int fd) const noexcept { return fd >= 0 && fd < kStandard && refused_[fd]; }

 private:
  struct Chunk {
    int fd;
    std::string text;
  };
  static constexpr int kStandard = 3;  // descriptors 0, 1 and 2

  int target(int fd);
  // Writes one piece of the first chunk.
  void write_piece();

  std::deque<Chunk> chunks_;
  std::size_t written_ = 0;  // number of bytes of the first chunk that have been written
  std::size_t size_ = 0;
  bool refused_[kStandard] = {};
  std::optional<Fd> terminals_[kStandard];  // for each descriptor that is a terminal; invalid if it could not be opened
};

}  // namespace adaptdl::cli
