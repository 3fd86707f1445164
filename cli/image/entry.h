// What a layer holds: files, directories, links and devices, each with its attributes.
//
// Threading: plain values and functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace adaptdl::image {

struct Entry {
  enum class Type { kFile, kDirectory, kSymlink, kHardLink, kFifo, kCharacterDevice, kBlockDevice, kSocket };

  std::string path;  // from the root, without slashes at its ends, "." or ".."; "" is the root itself
  Type type = Type::kFile;
  std::uint32_t mode = 0644;  // permissions, with set-id and sticky bits
  std::uint32_t uid = 0, gid = 0;
  std::uint64_t size = 0;  // bytes of a file's content; 0 for all else
  std::int64_t mtime = 0;  // seconds since 1970: layers have no fractions of them, as Docker's have none
  std::string link;        // a symbolic link's target, as it is; of a hard link: the path of an entry before it
  std::uint32_t device_major = 0, device_minor = 0;
  std::map<std::string, std::string> xattrs;  // by their full names: "security.capability"

  bool operator==(const Entry&) const = default;
};

// Gives a file's content, in order: up to `size` bytes, and how many; 0 at its end.
using Content = std::function<std::size_t(char* data, std::size_t size)>;

// Names that mean something in layers: in a directory, ".wh.NAME" says that lower layers have no NAME, and
// ".wh..wh..opq" that they have nothing in it.
inline constexpr std::string_view kWhiteoutPrefix = ".wh.";
inline constexpr std::string_view kOpaqueName = ".wh..wh..opq";

// The same inside an overlay: a character device 0,0, and this attribute of a directory with the value "y". It is
// the one of mounts with "userxattr", which root mounts as well, so that all trees are of one form.
inline constexpr const char* kOverlayXattrPrefix = "user.overlay.";
inline constexpr const char* kOverlayOpaque = "user.overlay.opaque";

// What is called `name` in an open directory (".": that itself), without following a link: its attributes, `path` as
// given, and of its xattrs those that layers have: security.capability, and user.* but the overlay's. No layer has a
// socket. Throws Error that names the path.
Entry read_entry(int directory, const std::string& name, std::string path);
// Of an open file, which must outlive it. Throws, when called, Error that names the path.
Content read_content(int file, std::string path);

// The path from the root that an archive's or a user's name means: without slashes at the ends, "." and "..". Throws
// Error for one that leads out of the root, or has a zero byte.
std::string inside_root(std::string_view name);

}  // namespace adaptdl::image
