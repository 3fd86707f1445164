// Text on its way out, written only as fast as it is taken.
//
// The descriptors stay as they were given: they may be shared with other processes, which a non-blocking mode would
// surprise. So each write is of no more than what poll(2) promises to take, and a reader that stops holds up nobody but
// the text. All text keeps its order, over both streams: where they are one terminal or file, lines appear as they
// came.
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
  // Whether so much waits that no more should be put.
  bool full() const noexcept { return size_ >= kFull; }
  // The descriptor that the next text is for; -1 if there is none.
  int fd() const noexcept { return chunks_.empty() ? -1 : chunks_.front().fd; }

  // Writes what is taken without waiting. Text that is refused, as by a full disk, is dropped; if the reader went away,
  // so is all text for it from then on.
  void write_some();
  // Writes everything, waiting as long as that takes.
  void write_all();

  // Whether the reader of a standard descriptor went away.
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
