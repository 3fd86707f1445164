// Reads a file that may be compressed with gzip, bzip2, xz or zstd; its first bytes determine the format.
//
// Unlike libarchive, it verifies the checksums of gzip, rejects garbage after any stream, and limits the memory of xz.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace adaptdl::image {

class Decompressor {
 public:
  // Reads from the file's current offset. Throws Error if the file cannot be read; the message does not name it.
  explicit Decompressor(Fd file);
  ~Decompressor();

  // Reads up to `size` bytes and returns their number; 0 only at the end. Throws Error for damaged and truncated
  // streams; the message does not name the file.
  std::size_t read(char* data, std::size_t size);

  class Codec;

 private:
  bool fill();  // returns false at the end of the file

  Fd file_;
  std::string buffer_;
  std::string_view input_;  // the unread part of buffer_
  bool file_ended_ = false;
  std::unique_ptr<Codec> codec_;  // null if the file is not compressed
  bool between_ = true;           // between two members or frames, or after the last one
};

}  // namespace adaptdl::image
