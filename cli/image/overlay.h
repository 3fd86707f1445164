// An overlay of directories, mounted while the object lives.
//
// Its directories are in the form of `userxattr`, for root too, so that both can use each other's: entry.h has the
// names.
//
// Threading: any thread; an object is used by one at a time. Lifetime: whoever has files of it open has closed them
// before it ends. REQUIRES: the process is in a build namespace (build_namespace.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace adaptdl::image {

struct OverlayLayers {
  // The topmost first; none: an empty directory. One that comes twice counts where it is topmost, which gives the same
  // files.
  std::vector<std::filesystem::path> lower;
  // Where changes go, and a directory on the same file system for the kernel's work, both made if they are missing
  // ("upper" with the mode, owner, times and attributes of the topmost lower one); "" for a view to read.
  std::filesystem::path upper, work;
};

class Overlay {
 public:
  // Mounts at `at`, an empty directory, which is made if it is missing. Paths may be long and have any characters;
  // there may be as many lower ones as the kernel takes, 500. Devices in it cannot be opened, and what is written is
  // not synced to the disk. Throws Error that says what the kernel dislikes, and the way out.
  Overlay(const OverlayLayers& layers, std::filesystem::path at);
  Overlay(Overlay&& other) noexcept;
  Overlay& operator=(Overlay&&) = delete;
  ~Overlay();  // unmounts

  const std::filesystem::path& path() const { return at_; }

 private:
  std::filesystem::path at_;
};

// The same by a process of one thread, whose working directory it changes, and not undone. Throws Error.
void mount_overlay(const OverlayLayers& layers, const std::filesystem::path& at);

}  // namespace adaptdl::image
