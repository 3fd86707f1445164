// An overlay of directories, mounted until the object is destroyed.
//
// Its directories use the `userxattr` format, even for root, so that root and other users can share them; entry.h
// defines the names of the attributes.
//
// Lifetime: files in the overlay must be closed before the object is destroyed. REQUIRES: the process is in a build
// namespace (build_namespace.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace adaptdl::image {

struct OverlayLayers {
  // Topmost first; if there are none, the overlay is an empty directory. Only the topmost occurrence of a repeated
  // directory is mounted; the others would not change the files.
  std::vector<std::filesystem::path> lower;
  // The directory for changes, and a directory on the same file system for the kernel's use. Both are created if they
  // are missing; a new `upper` receives the mode, owner, times and attributes of the topmost lower directory. Both are
  // "" for a read-only overlay.
  std::filesystem::path upper, work;
};

class Overlay {
 public:
  // Mounts at `at`, an empty directory, which is created if it is missing. Paths may be long and contain any
  // characters; the kernel accepts up to 500 lower directories. Devices in the overlay cannot be opened, and changes
  // are not synced to the disk. Throws an Error with the kernel's reason, and the remedy.
  Overlay(const OverlayLayers& layers, std::filesystem::path at);
  Overlay(Overlay&& other) noexcept;
  Overlay& operator=(Overlay&&) = delete;
  ~Overlay();  // unmounts

  const std::filesystem::path& path() const { return at_; }

 private:
  std::filesystem::path at_;
};

// Mounts an overlay permanently, and changes the working directory. The process must have one thread. Throws Error.
void mount_overlay(const OverlayLayers& layers, const std::filesystem::path& at);

}  // namespace adaptdl::image
