#include "image/layer/tar_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "image/layer/tar_header.h"

namespace adaptdl::image {
namespace {

// Go's tar reader has the same limit for a file's names and attributes.
constexpr std::uint64_t kMaxHeaderEntrySize = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxSize = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMaxId = std::numeric_limits<std::uint32_t>::max() - 1;  // the next number means "no change"
constexpr std::string_view kXattr = "SCHILY.xattr.";

[[noreturn]] void damaged(std::string_view why) { throw Error(fmt::format("invalid tar archive: {}", why)); }

std::string_view field(const std::array<char, 512>& block, std::size_t at, std::size_t size) {
  return std::string_view(block.data(), block.size()).substr(at, size);
}

std::string text(const std::array<char, 512>& block, std::size_t at, std::size_t size) {
  const std::string_view bytes = field(block, at, size);
  return std::string(bytes.substr(0, bytes.find('\0')));
}

// Parses a number: two's complement in base 256 if the highest bit is set, and otherwise octal digits surrounded by
// spaces and zero bytes.
std::int64_t numeric_field(std::string_view bytes) {
  if (!bytes.empty() && (bytes[0] & 0x80) != 0) {
    const bool negative = (bytes[0] & 0x40) != 0;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      unsigned char byte = static_cast<unsigned char>(bytes[i]);
      if (negative) byte = static_cast<unsigned char>(~byte);
      if (i == 0) byte &= 0x7f;
      if (value >> 55 != 0) damaged("number too large");
      value = value << 8 | byte;
    }
    return negative ? -static_cast<std::int64_t>(value) - 1 : static_cast<std::int64_t>(value);
  }
  const std::size_t begin = bytes.find_first_not_of(std::string_view(" \0", 2));
  if (begin == std::string_view::npos) return 0;
  bytes = bytes.substr(begin);
  bytes = bytes.substr(0, bytes.find_first_of(std::string_view(" \0", 2)));
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), value, 8);
  if (error != std::errc() || end != bytes.data() + bytes.size() || value < 0) damaged("invalid number");
  return value;
}

std::uint64_t size_of(std::int64_t value) {
  if (value < 0) damaged("negative size");
  return static_cast<std::uint64_t>(value);
}

std::uint32_t id_of(std::int64_t value) {
  if (value < 0 || value > kMaxId) damaged("invalid owner");
  return static_cast<std::uint32_t>(value);
}

std::uint64_t decimal(std::string_view digits, std::uint64_t max) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value > max) damaged("invalid number");
  return value;
}

// Parses "1700000000.25", and rounds down.
std::int64_t whole_seconds(std::string_view digits) {
  const std::size_t dot = std::min(digits.find('.'), digits.size());
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + dot, value);
  if (error != std::errc() || end != digits.data() + dot) damaged("invalid time");
  const bool fraction = digits.find_first_not_of(".0", dot) != std::string_view::npos;
  return digits.starts_with('-') && fraction && value > std::numeric_limits<std::int64_t>::min() ? value - 1 : value;
}

void check_sum(const std::array<char, 512>& block) {
  std::int64_t bytes = 0, signed_bytes = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const char c = i >= 148 && i < 156 ? ' ' : block[i];
    bytes += static_cast<unsigned char>(c);
    signed_bytes += static_cast<signed char>(c);
  }
  const std::int64_t sum = numeric_field(field(block, 148, 8));
  if (sum != bytes && sum != signed_bytes) damaged("wrong header checksum");
}

Entry::Type type_of_flag(char flag, const std::string& path) {
  switch (flag) {
    case '\0':  // the old format, in which a slash marks a directory
    case '0':
      return path.ends_with('/') ? Entry::Type::kDirectory : Entry::Type::kFile;
    case '7':
    case 'S':
      return Entry::Type::kFile;
    case '1':
      return Entry::Type::kHardLink;
    case '2':
      return Entry::Type::kSymlink;
    case '3':
      return Entry::Type::kCharacterDevice;
    case '4':
      return Entry::Type::kBlockDevice;
    case '5':
    case 'D':
      return Entry::Type::kDirectory;
    case '6':
      return Entry::Type::kFifo;
  }
  throw Error(fmt::format("invalid tar archive: '{}' has an unknown type", one_line(path, 200)));
}

}  // namespace

TarReader::TarReader(Source source) : source_(std::move(source)) {}

bool TarReader::read_block(Block& block) {
  std::size_t have = 0;
  while (have < block.size()) {
    const std::size_t count = source_(block.data() + have, block.size() - have);
    if (count == 0 && have == 0) return false;
    if (count == 0) damaged("unexpected end of file");
    have += count;
  }
  return true;
}

void TarReader::read_exactly(char* data, std::size_t size) {
  while (size > 0) {
    const std::size_t count = source_(data, size);
    if (count == 0) damaged("unexpected end of file");
    data += count;
    size -= count;
  }
}

void TarReader::skip(std::uint64_t size) {
  char buffer[16 << 10];
  while (size > 0) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(size, sizeof buffer));
    read_exactly(buffer, count);
    size -= count;
  }
}

std::string TarReader::read_special(std::uint64_t size) {
  special_ += std::min(size, kMaxHeaderEntrySize + 1);
  if (special_ > kMaxHeaderEntrySize) damaged("name or attribute too long");
  std::string bytes(static_cast<std::size_t>(size), '\0');
  read_exactly(bytes.data(), bytes.size());
  skip(tar_padding(size));
  return bytes;
}

void TarReader::read_records(std::uint64_t size, Records& records) {
  const std::string bytes = read_special(size);
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::size_t space = rest.find(' ');
    const std::size_t length = decimal(rest.substr(0, space), rest.size());
    if (space == std::string_view::npos || length < space + 3 || rest[length - 1] != '\n')
      damaged("invalid extended header");
    const std::string_view record = rest.substr(space + 1, length - space - 2);
    rest.remove_prefix(length);
    const std::size_t equals = record.find('=');
    if (equals == 0 || equals == std::string_view::npos) damaged("invalid extended header");
    const std::string key(record.substr(0, equals));
    const std::string_view value = record.substr(equals + 1);
    // The oldest sparse file format uses two records for each piece.
    if (key == "GNU.sparse.offset" || key == "GNU.sparse.numbytes") {
      std::string& map = records["GNU.sparse.map"];
      if (!map.empty()) map += ',';
      map += value;
    } else {
      records[key] = value;
    }
  }
}

// Reads the next header, which may describe an entry or be a special header; returns false at the end.
bool TarReader::read_header(Block& block) {
  if (!read_block(block)) return false;
  const auto is_zero = [&] { return std::all_of(block.begin(), block.end(), [](char c) { return c == '\0'; }); };
  if (is_zero()) {
    if (read_block(block) && !is_zero()) damaged("data after the end of the archive");
    return false;
  }
  check_sum(block);
  return true;
}

bool TarReader::next(Entry& entry) {
  skip(std::exchange(stored_, 0));
  skip(std::exchange(padding_, 0));
  sparse_ = false;
  pieces_.clear();
  special_ = global_size_;
  Records records;
  std::optional<std::string> name, link;
  Block block{};
  while (read_header(block)) {
    const std::uint64_t size = size_of(numeric_field(field(block, 124, 12)));
    const char type = block[156];
    if (type == 'x' || type == 'g') {
      read_records(size, type == 'g' ? global_ : records);
      if (type == 'g') global_size_ += size;
    } else if (type == 'L' || type == 'K') {
      const std::string bytes = read_special(size);
      (type == 'L' ? name : link) = bytes.substr(0, bytes.find('\0'));
    } else if (type == 'V') {  // a volume label
      skip(size);
      skip(tar_padding(size));
    } else {
      entry = {};
      entry.size = size;
      describe(block, entry);
      if (name) entry.path = *name;
      if (link) entry.link = *link;
      records.insert(global_.begin(), global_.end());  // for keys that the entry's own records lack
      apply(records, entry);
      entry.type = type_of_flag(type, entry.path);
      begin_sparse(block, records, entry);
      return true;
    }
  }
  if (name || link || !records.empty()) damaged("no entry after an extended header");
  return false;
}

void TarReader::describe(const Block& block, Entry& entry) {
  entry.path = text(block, 0, 100);
  entry.mode = static_cast<std::uint32_t>(numeric_field(field(block, 100, 8)) & 07777);
  entry.uid = id_of(numeric_field(field(block, 108, 8)));
  entry.gid = id_of(numeric_field(field(block, 116, 8)));
  entry.mtime = numeric_field(field(block, 136, 12));
  entry.link = text(block, 157, 100);
  const std::string_view magic = field(block, 257, 8);
  if (!magic.starts_with("ustar")) return;
  entry.device_major = static_cast<std::uint32_t>(numeric_field(field(block, 329, 8)));
  entry.device_minor = static_cast<std::uint32_t>(numeric_field(field(block, 337, 8)));
  // GNU's format stores times and the sparse map in place of the prefix.
  const std::string prefix = magic.starts_with(std::string_view("ustar\0", 6)) ? text(block, 345, 155) : "";
  if (!prefix.empty()) entry.path = fmt::format("{}/{}", prefix, entry.path);
}

void TarReader::apply(const Records& records, Entry& entry) {
  for (const auto& [key, value] : records) {
    if (key.starts_with(kXattr)) entry.xattrs[key.substr(kXattr.size())] = value;
    if (value.empty()) continue;  // the header's value applies
    if (key == "path") entry.path = value;
    if (key == "linkpath") entry.link = value;
    if (key == "size") entry.size = decimal(value, kMaxSize);
    if (key == "uid") entry.uid = static_cast<std::uint32_t>(decimal(value, kMaxId));
    if (key == "gid") entry.gid = static_cast<std::uint32_t>(decimal(value, kMaxId));
    if (key == "mtime") entry.mtime = whole_seconds(value);
  }
}

void TarReader::begin_sparse(const Block& block, const Records& records, Entry& entry) {
  // The sizes in the headers of links, devices and directories are meaningless.
  const char flag = block[156];
  stored_ = flag >= '1' && flag <= '6' ? 0 : entry.size;
  padding_ = tar_padding(stored_);
  if (entry.type != Entry::Type::kFile) entry.size = 0;
  size_ = entry.size;
  at_ = 0;
  piece_ = 0;
  if (entry.type != Entry::Type::kFile) return;
  const auto find = [&](const char* key) {
    const auto found = records.find(key);
    return found == records.end() ? std::string() : found->second;
  };
  if (flag == 'S') {
    read_old_map(block);
  } else if (const std::string map = find("GNU.sparse.map"); !map.empty()) {
    size_ = decimal(find("GNU.sparse.size"), kMaxSize);
    read_map_text(map);
  } else if (find("GNU.sparse.major") == "1") {
    size_ = decimal(find("GNU.sparse.realsize"), kMaxSize);
    read_map_in_content();
  } else {
    return;
  }
  sparse_ = true;
  if (const std::string name = find("GNU.sparse.name"); !name.empty()) entry.path = name;
  entry.size = size_;
  std::uint64_t stored = 0;
  for (const Piece& piece : pieces_) stored += piece.size;
  if (stored != stored_) damaged("wrong sparse file size");
}

void TarReader::add_piece(std::uint64_t offset, std::uint64_t size) {
  const std::uint64_t end = pieces_.empty() ? 0 : pieces_.back().offset + pieces_.back().size;
  if (offset < end || offset > size_ || size > size_ - offset) damaged("invalid sparse file map");
  pieces_.push_back({offset, size});
}

void TarReader::read_old_map(const Block& block) {
  size_ = size_of(numeric_field(field(block, 483, 12)));
  const auto take = [&](const Block& from, std::size_t at, std::size_t count) {
    for (std::size_t i = 0; i < count && from[at + 24 * i] != '\0'; ++i)
      add_piece(size_of(numeric_field(field(from, at + 24 * i, 12))),
                size_of(numeric_field(field(from, at + 24 * i + 12, 12))));
  };
  take(block, 386, 4);
  Block more{};
  for (bool extended = block[482] != 0; extended; extended = more[504] != 0) {
    if (!read_block(more)) damaged("unexpected end of file");
    if (pieces_.size() > kMaxHeaderEntrySize) damaged("too many pieces in a sparse file");
    take(more, 0, 21);
  }
}

void TarReader::read_map_text(std::string_view map) {
  std::vector<std::uint64_t> numbers;
  while (!map.empty()) {
    const std::size_t comma = std::min(map.find(','), map.size());
    numbers.push_back(decimal(map.substr(0, comma), kMaxSize));
    map.remove_prefix(std::min(comma + 1, map.size()));
  }
  if (numbers.size() % 2 != 0) damaged("invalid sparse file map");
  for (std::size_t i = 0; i < numbers.size(); i += 2) add_piece(numbers[i], numbers[i + 1]);
}

// Reads a sparse file's map in the newest format: lines of digits before the content, padded to whole blocks.
void TarReader::read_map_in_content() {
  std::string line;
  Block block{};
  std::size_t at = block.size();
  const auto read_line = [&] {
    for (line.clear();; ++at) {
      if (at == block.size()) {
        if (stored_ < block.size()) damaged("invalid sparse file map");
        read_exactly(block.data(), block.size());
        stored_ -= block.size();
        at = 0;
      }
      if (block[at] == '\n') break;
      if (line.size() > 20) damaged("invalid number");
      line += block[at];
    }
    ++at;
    return decimal(line, kMaxSize);
  };
  const std::uint64_t count = read_line();
  if (count > kMaxHeaderEntrySize) damaged("too many pieces in a sparse file");
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t offset = read_line();
    add_piece(offset, read_line());
  }
}

std::size_t TarReader::read(char* data, std::size_t size) {
  size = static_cast<std::size_t>(std::min<std::uint64_t>(size, size_ - at_));
  if (size == 0) return 0;
  bool hole = false;
  if (sparse_) {
    while (piece_ < pieces_.size() && at_ >= pieces_[piece_].offset + pieces_[piece_].size) ++piece_;
    hole = piece_ == pieces_.size() || at_ < pieces_[piece_].offset;
    const std::uint64_t end = piece_ == pieces_.size() ? size_
                              : hole                   ? pieces_[piece_].offset
                                                       : pieces_[piece_].offset + pieces_[piece_].size;
    size = static_cast<std::size_t>(std::min<std::uint64_t>(size, end - at_));
  }
  if (hole) {
    std::memset(data, 0, size);
  } else {
    size = source_(data, size);
    if (size == 0) damaged("unexpected end of file");
    stored_ -= size;
  }
  at_ += size;
  return size;
}

}  // namespace adaptdl::image
