// The directory of a cache mount while a step uses it. RUN --mount=type=cache,sharing= decides whether other steps, of
// this build or another, wait for it, share it, or get a directory of their own.
//
// The directory of all cache mounts has KEY and KEY.lock for each; KEY-1, KEY-2 … where a private one was in use.
//
// Threading: any thread. Lifetime: the lock is held as long as the object or the process lives; the contents are kept.
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "image/dockerfile.h"
#include "socket.h"

namespace adaptdl::image {

class CacheMount {
 public:
  // `fill` writes the first contents of a new directory. Waits until it is free. Throws Error, and http::Stopped.
  CacheMount(const std::filesystem::path& caches, const Mount& mount, const std::stop_token& stop,
             const std::function<void(const std::filesystem::path& directory)>& fill = nullptr);

  const std::filesystem::path& directory() const { return directory_; }

 private:
  bool take(const std::filesystem::path& directory, bool exclusive);

  std::filesystem::path directory_;
  net::Fd lock_;
};

}  // namespace adaptdl::image
