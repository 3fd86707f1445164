// A file that is written next to its target, and replaces the target when the file is complete.
//
// Lifetime: without commit(), the destructor removes the file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "kube/copy/cleanup.h"

namespace adaptdl::kube {

class TemporaryFile {
 public:
  // Creates the file in the directory of `target`. Throws Error if there is not enough space for `size` bytes or if
  // permission is denied.
  TemporaryFile(const std::filesystem::path& target, std::uint64_t size);
  void write(std::string_view bytes);
  // Sets the mode and time, and renames the file to the target, which is replaced if it exists.
  void commit(mode_t mode, std::time_t modified);

 private:
  std::filesystem::path target_, path_;
  Fd fd_;
  std::unique_ptr<Cleanup> cleanup_;
};

// Writes all bytes. Throws Error: "cannot write WHAT: REASON".
void write_all(int fd, std::string_view bytes, const std::string& what);

// Throws Error: "cannot ACTION: REASON", with the reason from errno.
[[noreturn]] void fail(const std::string& action);

}  // namespace adaptdl::kube
