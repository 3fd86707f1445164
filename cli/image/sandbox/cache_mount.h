// A cache mount's directory while a step uses it. The sharing= option of RUN --mount=type=cache decides whether other
// steps, in this build or in another, wait for the directory, share it, or use a directory of their own.
//
// The directory of all cache mounts contains KEY and KEY.lock for each mount, and KEY-1, KEY-2, … if a private mount
// was in use when another step needed it.
//
// Lifetime: the lock is held until the object is destroyed or the process ends; the directory's contents are kept.
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "base/fd.h"
#include "image/dockerfile/run_mount.h"

namespace adaptdl::image {

class CacheMount {
 public:
  // Waits until the directory is free. `fill` writes the initial contents of a new directory. Throws Error or
  // http::Stopped.
  CacheMount(const std::filesystem::path& caches, const Mount& mount, const std::stop_token& stop,
             const std::function<void(const std::filesystem::path& directory)>& fill = nullptr);

  const std::filesystem::path& directory() const { return directory_; }

 private:
  bool take(const std::filesystem::path& directory, bool exclusive);

  std::filesystem::path directory_;
  Fd lock_;
};

}  // namespace adaptdl::image
