// An overlay of directories, mounted while the object lives.
//
// Its directories are in the form of `userxattr`, for root too, so that both can use each other's: a removed file is a
// character device 0/0, and a directory that hides those below has the attribute user.overlay.opaque = "y". Attributes
// of that prefix are the overlay's own and belong into no layer.
//
// Threading: any thread; an object is used by one at a time. Lifetime: whoever has files of it open has closed them
// before it ends. REQUIRES: the process is in a build namespace (build_namespace.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace adaptdl::image {

inline constexpr const char* kOverlayAttributes = "user.overlay.";
inline constexpr const char* kOpaqueAttribute = "user.overlay.opaque";

struct OverlayLayers {
  std::vector<std::filesystem::path> lower;  // the topmost first; none: an empty directory
  // Where changes go, and a directory on the same file system for the kernel's work, both made if they are missing
  // ("upper" with the mode, owner, times and attributes of the topmost lower one); "" for a view to read.
  std::filesystem::path upper, work;
};

class Overlay {
 public:
  // Mounts at `at`, an empty directory. Any characters and numbers of directories are good. Devices in it cannot be
  // opened. Throws Error that says what the kernel dislikes, and the way out.
  Overlay(const OverlayLayers& layers, std::filesystem::path at);
  Overlay(Overlay&& other) noexcept;
  Overlay& operator=(Overlay&&) = delete;
  ~Overlay();  // unmounts

  const std::filesystem::path& path() const { return at_; }

 private:
  std::filesystem::path at_;
};

// A detached mount of it, as a file descriptor for move_mount(2). Throws Error.
int mount_overlay(const OverlayLayers& layers, bool read_only);

}  // namespace adaptdl::image
