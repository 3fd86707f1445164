// A journal's lock, which Optuna also respects: FILE.lock, a symbolic link that exists while the lock is held.
//
// A process that is killed leaves the link behind. A process that waits for the lock takes it over when neither the
// link nor the file has changed for the grace time. Optuna 4.0 has no grace time and waits forever.
//
// Errors: Error if a system call fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace adaptdl::sched::tune {

inline constexpr std::chrono::milliseconds kLockGrace{30'000};  // same as in Optuna

class JournalLock {
 public:
  // Receives a message when the wait takes a long time, and when the lock is taken over.
  using Notice = std::function<void(std::string_view)>;

  // Waits for the lock. `unique` becomes part of a file name and must not be used by any other process. If `notice` is
  // empty, messages are logged as warnings on standard error.
  JournalLock(const std::filesystem::path& file, std::string unique, std::chrono::milliseconds grace = kLockGrace,
              const Notice& notice = {});
  ~JournalLock();
  JournalLock(const JournalLock&) = delete;
  JournalLock& operator=(const JournalLock&) = delete;

  static std::filesystem::path path_of(const std::filesystem::path& file) { return file.native() + ".lock"; }

 private:
  // Identifies the link in the file system.
  struct Identity {
    std::uint64_t inode = 0;
    std::int64_t modified_ns = 0;
    bool operator==(const Identity&) const = default;
  };

  bool try_create() const;
  void wait(const Notice& notice);
  Identity identity() const;
  bool remove(const Identity* expected) const;

  std::filesystem::path file_, lock_;
  std::string unique_;
  std::chrono::milliseconds grace_;
  Identity own_;
  std::chrono::steady_clock::time_point since_;
};

}  // namespace adaptdl::sched::tune
