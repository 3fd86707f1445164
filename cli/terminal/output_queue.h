// OutputQueue holds text that is written only as fast as its reader accepts it.
//
// The descriptors keep their mode, because a non-blocking one would surprise other processes that share them. So each
// write has only as many bytes as poll(2) promises to accept, and a reader that stops holds up only the text. All text
// keeps its order, across both streams: if they are the same terminal or file, lines appear in the order in which they
// were put.
#pragma once

#include <cstddef>
#include <deque>
#include <string>

namespace adaptdl::cli {

class OutputQueue {
 public:
  static constexpr std::size_t kFull = std::size_t{4} << 20;  // bytes

  void put(int fd, std::string text);

  bool empty() const noexcept { return chunks_.empty(); }
  // Returns whether so much text waits that no more should be put.
  bool full() const noexcept { return size_ >= kFull; }
  // Returns the descriptor of the first waiting text; -1 if there is none.
  int fd() const noexcept { return chunks_.empty() ? -1 : chunks_.front().fd; }

  // Writes as much as is accepted without blocking. Text that is refused, for example by a full disk, is dropped; if
  // the reader went away, so is all later text for it.
  void write_some();
  // Writes everything, and blocks as long as that takes.
  void write_all();

  // Returns whether the reader of a standard descriptor went away.
  bool refused(int fd) const noexcept { return fd >= 0 && fd < kStandard && refused_[fd]; }

 private:
  struct Chunk {
    int fd;
    std::string text;
  };
  static constexpr int kStandard = 3;  // descriptors 0, 1, 2

  // Writes one piece of the first chunk.
  void write_piece();

  std::deque<Chunk> chunks_;
  std::size_t written_ = 0;  // of the first chunk
  std::size_t size_ = 0;
  bool refused_[kStandard] = {};
};

}  // namespace adaptdl::cli
