// Limits the total space that an image's layers may occupy in a file system, so that the layers cannot fill the file
// system.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

namespace adaptdl::image {

// Threading: any thread may call take().
class SpaceBudget {
 public:
  // Allows 95% of the free bytes and inodes in the file system that contains `directory`. If these numbers are
  // unknown, there is no limit.
  explicit SpaceBudget(const std::filesystem::path& directory);
  // Takes space from the budget. Throws Error if the remaining budget is too small.
  void take(std::uint64_t bytes, std::uint64_t files);

 private:
  std::filesystem::path directory_;
  std::uint64_t max_bytes_, max_files_;
  std::atomic<std::uint64_t> bytes_ = 0, files_ = 0;
};

}  // namespace adaptdl::image
