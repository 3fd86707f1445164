// The directory of a cache mount, held by a step: as RUN --mount=type=cache,sharing= has it, other steps of this build
// or another wait, use it as well, or get one of their own.
//
// In the directory of all of them are KEY and KEY.lock for each; KEY-1, KEY-2 … where a private one was in use.
//
// Threading: any thread. Lifetime: held as long as the object lives, or the process; what is in it stays.
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
  // `fill` puts into a new directory what it begins with. Waits for its turn. Throws Error, and http::Stopped.
  CacheMount(const std::filesystem::path& caches, const Mount& mount, const std::stop_token& stop,
             const std::function<void(const std::filesystem::path& directory)>& fill = nullptr);

  const std::filesystem::path& directory() const { return directory_; }

 private:
  bool take(const std::filesystem::path& directory, bool exclusive);

  std::filesystem::path directory_;
  net::Fd lock_;
};

}  // namespace adaptdl::image
