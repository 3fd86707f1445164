// Limits the space that the layers of an image may take together in a file system, so that they cannot fill it.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

namespace adaptdl::image {

// Threading: any thread.
class SpaceBudget {
 public:
  // Allows 95 % of the free bytes and inodes in the file system of `directory`; everything if these are unknown.
  explicit SpaceBudget(const std::filesystem::path& directory);
  // Throws Error if this is more than what is left.
  void take(std::uint64_t bytes, std::uint64_t files);

 private:
  std::filesystem::path directory_;
  std::uint64_t most_bytes_, most_files_;
  std::atomic<std::uint64_t> bytes_ = 0, files_ = 0;
};

}  // namespace adaptdl::image
