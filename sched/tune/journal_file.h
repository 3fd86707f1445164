// A file of lines that several processes append to and read at the same time, as journal.h describes it.
//
// A line counts once its newline is there. What follows the last newline belongs to a write that is in progress, or
// to one of a process that was killed.
//
// Errors: Error with the file, and the line where it is about one. After an error, the same lines are read again.
//
// Threading: one thread at a time; any number of processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace adaptdl::sched::tune {

class JournalFile {
 public:
  // Creates the file if there is none and `create`.
  JournalFile(std::filesystem::path path, bool create);

  // Calls `use` with each line that was not read yet, without its newline. An Error from it is rethrown with the
  // file and the line.
  void read(const std::function<void(std::string_view)>& use);
  // Removes an incomplete last line, or completes it if only the newline is missing. Returns whether there is a new
  // line to read. REQUIRES: read to the end, and the lock is held.
  bool repair();
  // Appends lines and flushes them to disk. If that fails, the file is left as it was. REQUIRES: repaired, and the lock
  // is held.
  void append(std::string_view lines);

  const std::filesystem::path& path() const { return path_; }

 private:
  void read_new(const std::function<void(std::string_view)>& use);
  int open(int flags) const;
  std::uint64_t check_same(int fd) const;
  void check_tail(int fd) const;
  [[noreturn]] void fail(std::string_view action) const;
  [[noreturn]] void fail_line(std::string_view what) const;

  std::filesystem::path path_;
  std::uint64_t inode_ = 0;   // not the device, which another mount of the same NFS changes
  std::uint64_t offset_ = 0;  // of the first line that was not read
  std::uint64_t lines_ = 0;   // that were read
  std::string tail_;          // the last bytes before the offset
};

}  // namespace adaptdl::sched::tune
