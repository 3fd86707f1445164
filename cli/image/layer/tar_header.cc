#include "image/layer/tar_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "adaptdl/error.h"
#include "base/printable.h"

namespace adaptdl::image {
namespace {

constexpr std::uint64_t kMaxOctal7 = 07777777, kMaxOctal11 = 077777777777;

struct Ustar {
  char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[6], version[2],
      user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
static_assert(sizeof(Ustar) == kTarBlock);

template <std::size_t Size>
void put_text(char (&field)[Size], std::string_view text) {
  std::memcpy(field, text.data(), std::min(text.size(), Size));
}

template <std::size_t Size>
void put_number(char (&field)[Size], std::uint64_t number) {
  fmt::format_to_n(field, Size - 1, "{:0{}o}", number, Size - 1);
}

char type_flag(Entry::Type type) {
  switch (type) {
    case Entry::Type::kFile:
      return '0';
    case Entry::Type::kHardLink:
      return '1';
    case Entry::Type::kSymlink:
      return '2';
    case Entry::Type::kCharacterDevice:
      return '3';
    case Entry::Type::kBlockDevice:
      return '4';
    case Entry::Type::kDirectory:
      return '5';
    case Entry::Type::kFifo:
      return '6';
    case Entry::Type::kSocket:
      break;
  }
  throw Error("a layer cannot contain a socket");
}

std::string block_of(Ustar header) {
  put_text(header.magic, std::string_view("ustar\0", 6));
  put_text(header.version, "00");
  std::memset(header.checksum, ' ', sizeof header.checksum);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  unsigned sum = 0;
  for (const unsigned char c : bytes) sum += c;
  const std::string digits = fmt::format("{:06o}", sum);
  std::memcpy(bytes.data() + offsetof(Ustar, checksum), digits.c_str(), 7);
  return bytes;
}

// Returns "LENGTH KEY=VALUE\n", where the length includes its own digits.
std::string pax_record(std::string_view key, std::string_view value) {
  const std::size_t rest = key.size() + value.size() + 3;
  std::size_t size = rest + fmt::formatted_size("{}", rest);
  if (rest + fmt::formatted_size("{}", size) != size) ++size;
  return fmt::format("{} {}={}\n", size, key, value);
}

std::string pax_header(const std::string& records) {
  Ustar header{};
  put_text(header.name, "PaxHeaders.0");
  put_number(header.mode, 0644);
  put_number(header.uid, 0);
  put_number(header.gid, 0);
  put_number(header.size, records.size());
  put_number(header.mtime, 0);
  header.type = 'x';
  return block_of(header) + records + std::string(tar_padding(records.size()), '\0');
}

}  // namespace

std::string tar_header(const Entry& entry) {
  std::string pax;
  std::string name = entry.path.empty() ? "." : entry.path;
  if (entry.type == Entry::Type::kDirectory) name += '/';
  const auto number = [&](auto& field, std::string_view key, std::uint64_t value, std::uint64_t max) {
    put_number(field, value <= max ? value : 0);
    if (value > max) pax += pax_record(key, std::to_string(value));
  };
  const auto text = [&](auto& field, std::string_view key, std::string_view value) {
    put_text(field, value);
    if (value.size() > sizeof field) pax += pax_record(key, value);
  };
  Ustar header{};
  header.type = type_flag(entry.type);
  put_number(header.mode, entry.mode & 07777);
  number(header.gid, "gid", entry.gid, kMaxOctal7);
  text(header.link, "linkpath", entry.link);
  if (entry.mtime >= 0) {
    number(header.mtime, "mtime", static_cast<std::uint64_t>(entry.mtime), kMaxOctal11);
  } else {
    put_number(header.mtime, 0);
    pax += pax_record("mtime", std::to_string(entry.mtime));
  }
  text(header.name, "path", name);
  number(header.size, "size", entry.type == Entry::Type::kFile ? entry.size : 0, kMaxOctal11);
  number(header.uid, "uid", entry.uid, kMaxOctal7);
  put_number(header.major, entry.device_major & kMaxOctal7);
  put_number(header.minor, entry.device_minor & kMaxOctal7);
  for (const auto& [key, value] : entry.xattrs) {
    if (key.find('=') != std::string::npos)
      throw Error(fmt::format(
          "'{}' has the extended attribute '{}', which a layer cannot contain because of the '=' in its name",
          one_line(entry.path, 200), one_line(key, 100)));
    pax += pax_record("SCHILY.xattr." + key, value);
  }
  return (pax.empty() ? "" : pax_header(pax)) + block_of(header);
}

}  // namespace adaptdl::image
