// What the layers of an image may take of a file system together, so that none of them fills it.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

namespace adaptdl::image {

// Threading: any thread.
class SpaceBudget {
 public:
  // 95 % of the bytes and inodes that are free in the file system of `directory`; no bound where it does not tell.
  explicit SpaceBudget(const std::filesystem::path& directory);
  // Throws Error if that is more than is left.
  void take(std::uint64_t bytes, std::uint64_t files);

 private:
  std::filesystem::path directory_;
  std::uint64_t most_bytes_, most_files_;
  std::atomic<std::uint64_t> bytes_ = 0, files_ = 0;
};

}  // namespace adaptdl::image
