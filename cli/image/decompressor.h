// Reads a file that may be compressed, by gzip, bzip2, xz or zstd, or not at all; its first bytes tell.
//
// Threading: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "socket.h"

namespace adaptdl::image {

class Decompressor {
 public:
  // From the file's present place. Throws Error for a file that cannot be read; its message names no file.
  explicit Decompressor(net::Fd file);
  ~Decompressor();

  // Up to `size` bytes, and how many; 0 only at the end. Throws Error, whose message names no file, for damaged and
  // truncated streams.
  std::size_t read(char* data, std::size_t size);

  class Codec;

 private:
  bool fill();  // False: the file's end.

  net::Fd file_;
  std::string buffer_;
  std::string_view input_;  // of it
  bool file_ended_ = false;
  std::unique_ptr<Codec> codec_;  // null: nothing is compressed
  bool between_ = true;           // two members or frames, or after the last
};

}  // namespace adaptdl::image
