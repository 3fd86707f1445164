// Reads the entries in a tar stream: the ustar, pax, GNU and old formats, including GNU tar's sparse files.
//
// Accepts what the readers in Docker and containerd accept. libarchive differs: it accepts invalid numbers and unknown
// types, cuts names at a zero byte, skips entries that follow a hard link with a size, and some of its versions lose
// link targets that are not ASCII. Error messages are a single line, and do not name the archive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "image/layer/entry.h"

namespace adaptdl::image {

class TarReader {
 public:
  // Reads up to `size` bytes, and returns their number; 0 at the end.
  using Source = std::function<std::size_t(char* data, std::size_t size)>;
  explicit TarReader(Source source);

  // Reads the next entry, with names as in the archive; returns false at the end of the archive, after which the source
  // may contain more bytes. Throws Error.
  bool next(Entry& entry);
  // Reads the current entry's content in order, with holes as zeros; returns 0 at its end. Throws Error if the content
  // is truncated.
  std::size_t read(char* data, std::size_t size);

 private:
  using Block = std::array<char, 512>;
  using Records = std::map<std::string, std::string>;
  struct Piece {  // a part of a sparse file; there are holes between pieces
    std::uint64_t offset, size;
  };

  bool read_block(Block& block);  // returns false at the source's end
  bool read_header(Block& block);
  void read_exactly(char* data, std::size_t size);
  void skip(std::uint64_t size);
  std::string read_special(std::uint64_t size);
  void read_records(std::uint64_t size, Records& records);
  void describe(const Block& block, Entry& entry);
  void apply(const Records& records, Entry& entry);
  void begin_sparse(const Block& block, const Records& records, Entry& entry);
  void read_old_map(const Block& block);
  void read_map_text(std::string_view text);
  void read_map_in_content();
  void add_piece(std::uint64_t offset, std::uint64_t size);

  const Source source_;
  Records global_;
  std::uint64_t special_ = 0;      // bytes of the current entry's names and attributes, including global ones
  std::uint64_t global_size_ = 0;  // bytes of the global names and attributes
  std::uint64_t stored_ = 0;       // bytes of the current content that are not yet read
  std::uint64_t padding_ = 0;      // zero bytes after the content
  std::uint64_t size_ = 0;         // the current file's size, with holes
  std::uint64_t at_ = 0;           // the offset in the current file
  bool sparse_ = false;
  std::vector<Piece> pieces_;
  std::size_t piece_ = 0;
};

}  // namespace adaptdl::image
