// The directory of a checkpoint before it is renamed to its final name.
//
// The saving process holds a lock on the directory. The lock distinguishes it from a directory that a killed process
// left behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "checkpoint/files.h"

namespace adaptdl::checkpoint {

inline constexpr std::string_view kSavingPrefix = ".saving-";

class SavingDirectory {
 public:
  // Creates the directory in `parent`. `number` is part of its name. Throws CheckpointError.
  SavingDirectory(const std::filesystem::path& parent, std::uint64_t number);
  // Deletes the directory unless it was committed.
  ~SavingDirectory();
  SavingDirectory(const SavingDirectory&) = delete;
  SavingDirectory& operator=(const SavingDirectory&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  // Syncs the directory, and renames it to `target` in the same parent. Throws CheckpointError if `target` exists.
  void commit(const std::filesystem::path& target);

 private:
  bool lock();

  std::filesystem::path parent_;
  std::filesystem::path path_;
  Fd lock_;
  bool committed_ = false;
};

}  // namespace adaptdl::checkpoint
