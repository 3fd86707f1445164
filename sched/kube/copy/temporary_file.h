// A file that is written beside the one that it is to become, and takes its place when it is complete.
//
// Threading: used by one thread at a time. Lifetime: one that goes before commit() leaves nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "kube/copy/cleanup.h"
#include "local/fd.h"

namespace adaptdl::kube {

class TemporaryFile {
 public:
  // In the directory of `target`, where `size` bytes are needed. Throws Error if there is no room, or no permission.
  TemporaryFile(const std::filesystem::path& target, std::uint64_t size);
  void write(std::string_view bytes);
  // Gives it mode and time, and its name. A file that is there is replaced.
  void commit(mode_t mode, std::time_t modified);

 private:
  std::filesystem::path target_, path_;
  sched::Fd fd_;
  std::unique_ptr<Cleanup> cleanup_;
};

// Writes all of it. Throws Error with the path.
void write_all(int fd, std::string_view bytes, const std::filesystem::path& path);

// Throws Error: "cannot ACTION: why", by errno.
[[noreturn]] void fail(const std::string& action);

}  // namespace adaptdl::kube
