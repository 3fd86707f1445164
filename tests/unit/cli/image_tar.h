// Builds tar archives entry by entry.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "image/layer/tar_header.h"

namespace adaptdl::image {

// A tar archive whose entries may be invalid.
class Tar {
 public:
  explicit Tar(std::uint32_t uid = 0, std::uint32_t gid = 0) : uid_(uid), gid_(gid) {}

  Tar& add(Entry entry, std::string_view content = "") {
    entry.size = std::max<std::uint64_t>(entry.size, content.size());
    entry.uid = uid_;
    entry.gid = gid_;
    bytes += tar_header(entry);
    bytes += content;
    bytes.append(tar_padding(content.size()), '\0');
    return *this;
  }
  Tar& file(const std::string& path, std::string_view content = "") { return add(named(path), content); }
  Tar& directory(const std::string& path, unsigned mode = 0755) {
    Entry entry = named(path, Entry::Type::kDirectory);
    entry.mode = mode;
    return add(entry);
  }
  Tar& link(const std::string& path, const std::string& to, Entry::Type type = Entry::Type::kSymlink) {
    Entry entry = named(path, type);
    entry.link = to;
    return add(entry);
  }
  Tar& hard_link(const std::string& path, const std::string& to) { return link(path, to, Entry::Type::kHardLink); }
  Tar& device(const std::string& path, unsigned major, unsigned minor) {
    Entry entry = named(path, Entry::Type::kCharacterDevice);
    entry.device_major = major;
    entry.device_minor = minor;
    return add(entry);
  }
  static Entry named(const std::string& path, Entry::Type type = Entry::Type::kFile) {
    Entry entry;
    entry.path = path;
    entry.type = type;
    entry.mtime = 1'600'000'000;
    return entry;
  }
  std::string whole() const { return bytes + std::string(2 * kTarBlock, '\0'); }

  std::string bytes;

 private:
  std::uint32_t uid_, gid_;
};

}  // namespace adaptdl::image
