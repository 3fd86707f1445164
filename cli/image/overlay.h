// An overlay of directories, mounted while the object lives.
//
// Its directories have the format of `userxattr`, also for root, so that root and other users can share them: entry.h
// has the names.
//
// Threading: any thread, one at a time for each object. Lifetime: files in the overlay must be closed before the object
// is destroyed. REQUIRES: the process is in a build namespace (build_namespace.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace adaptdl::image {

struct OverlayLayers {
  // Topmost first; none: an empty directory. Only the topmost occurrence of a repeated directory is mounted, which
  // gives the same files.
  std::vector<std::filesystem::path> lower;
  // The directory for changes, and one on the same file system for the kernel's use; both are created if they are
  // missing ("upper" with the mode, owner, times and attributes of the topmost lower one). "" for a read-only overlay.
  std::filesystem::path upper, work;
};

class Overlay {
 public:
  // Mounts at `at`, an empty directory, which is created if it is missing. Paths may be long and contain any
  // characters; the kernel accepts up to 500 lower directories. Devices in it cannot be opened, and changes are not
  // synced to the disk. Throws Error with the kernel's reason, and the remedy.
  Overlay(const OverlayLayers& layers, std::filesystem::path at);
  Overlay(Overlay&& other) noexcept;
  Overlay& operator=(Overlay&&) = delete;
  ~Overlay();  // unmounts

  const std::filesystem::path& path() const { return at_; }

 private:
  std::filesystem::path at_;
};

// Mounts permanently, in a process with one thread, whose working directory it changes. Throws Error.
void mount_overlay(const OverlayLayers& layers, const std::filesystem::path& at);

}  // namespace adaptdl::image
