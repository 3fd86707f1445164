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

  std::string path;  // relative to the root, in the form that inside_root() returns; "" is the root itself
  Type type = Type::kFile;
  std::uint32_t mode = 0644;  // permissions, including set-id and sticky bits
  std::uint32_t uid = 0, gid = 0;
  std::uint64_t size = 0;  // the size of a file's content in bytes; 0 for other types
  std::int64_t mtime = 0;  // in seconds since 1970; like Docker's layers, ours store whole seconds
  std::string link;        // a symbolic link's target, unchanged; for a hard link, the path of an earlier entry
  std::uint32_t device_major = 0, device_minor = 0;
  std::map<std::string, std::string> xattrs;  // keyed by full name, such as "security.capability"

  bool operator==(const Entry&) const = default;
};

// Reads a file's content sequentially, up to `size` bytes per call. Returns the number of bytes read; 0 at the end.
using Content = std::function<std::size_t(char* data, std::size_t size)>;

// Special names in layers: in a directory, ".wh.NAME" hides NAME in lower layers, and ".wh..wh..opq" hides all of the
// directory's entries in lower layers.
inline constexpr std::string_view kWhiteoutPrefix = ".wh.";
inline constexpr std::string_view kOpaqueName = ".wh..wh..opq";

// Overlays instead use a character device 0,0 to hide a name, and the attribute kOverlayOpaque of a directory, with the
// value "y", to hide all entries of the directory. Overlays use this attribute only if they are mounted with
// "userxattr"; root also mounts overlays with "userxattr", so that all trees have the same form.
inline constexpr const char* kOverlayXattrPrefix = "user.overlay.";
inline constexpr const char* kOverlayOpaque = "user.overlay.opaque";

// Returns the attributes of `name` in an open directory ("." for the directory itself), without following a link.
// `path` is stored as given. Of the extended attributes, only those that layers can contain are returned:
// security.capability, and user.* except user.overlay.*. Sockets are returned, although layers cannot contain them.
// Throws an Error that names the path.
Entry read_entry(int directory, const std::string& name, std::string path);
// Returns a function that reads an open file, which must outlive the function. The function throws an Error that names
// the path.
Content read_content(int file, std::string path);

// Normalizes a name from an archive or a user to a path relative to the root, without "." or ".." and without leading
// or trailing slashes. Throws Error if the name leads outside the root, or contains a zero byte.
std::string inside_root(std::string_view name);

}  // namespace adaptdl::image
