// The entries of a layer: files, directories, links and devices, with their attributes.
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

  std::string path;  // relative to the root, without slashes at its ends, "." or ".."; "" is the root itself
  Type type = Type::kFile;
  std::uint32_t mode = 0644;  // permissions, including set-id and sticky bits
  std::uint32_t uid = 0, gid = 0;
  std::uint64_t size = 0;  // of a file's content, in bytes; 0 for other types
  std::int64_t mtime = 0;  // seconds since 1970; layers have no fractions, like Docker's
  std::string link;        // a symbolic link's target, unchanged; for a hard link, the path of an earlier entry
  std::uint32_t device_major = 0, device_minor = 0;
  std::map<std::string, std::string> xattrs;  // keyed by full name, such as "security.capability"

  bool operator==(const Entry&) const = default;
};

// Reads a file's content sequentially: up to `size` bytes per call. Returns their number; 0 at the end.
using Content = std::function<std::size_t(char* data, std::size_t size)>;

// Special names in layers: in a directory, ".wh.NAME" hides NAME of lower layers, and ".wh..wh..opq" hides all of the
// directory's entries in lower layers.
inline constexpr std::string_view kWhiteoutPrefix = ".wh.";
inline constexpr std::string_view kOpaqueName = ".wh..wh..opq";

// Overlays use a character device 0,0 and the value "y" of this directory attribute instead. The attribute is that of
// mounts with "userxattr", which are also used by root, so that all trees have the same form.
inline constexpr const char* kOverlayXattrPrefix = "user.overlay.";
inline constexpr const char* kOverlayOpaque = "user.overlay.opaque";

// Returns the attributes of `name` in an open directory (".": the directory itself), without following a link. `path`
// is stored as given. Extended attributes are limited to those of layers: security.capability, and user.* except the
// overlay's. Sockets are returned, although layers cannot contain them. Throws Error that names the path.
Entry read_entry(int directory, const std::string& name, std::string path);
// Reads an open file, which must outlive the result. Calls throw Error that names the path.
Content read_content(int file, std::string path);

// Normalizes a name from an archive or a user to a path from the root, without slashes at the ends, "." and "..".
// Throws Error if it leads out of the root, or contains a zero byte.
std::string inside_root(std::string_view name);

}  // namespace adaptdl::image
