// A file of lines that several processes append to and read at the same time, as described in journal.h.
//
// A line is complete once its newline is written. Anything after the last newline belongs to a write that is still in
// progress or whose process was killed.
//
// Errors: Error, whose message contains the file and, if a line is at fault, its number. After an error, the next
// read() begins with the same lines.
//
// Threading: an object must be used by one thread at a time; any number of processes may use a file.
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
  // Opens the file; creates it if it does not exist and `create` is true.
  JournalFile(std::filesystem::path path, bool create);

  // Calls `use` with each unread line, without its newline. An Error from `use` is rethrown with the file and the line
  // number.
  void read(const std::function<void(std::string_view)>& use);
  // Removes an incomplete last line, or completes it if only the newline is missing. Returns whether there is a new
  // line to read. REQUIRES that the file was read to its end and that the lock is held.
  bool repair();
  // Appends lines and flushes them to disk. If the write fails, the file is unchanged; if the flush fails, the file may
  // contain the lines. REQUIRES that repair() has returned false and that the lock is held.
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
  std::uint64_t inode_ = 0;   // the device may differ between mounts of the same NFS, so it is not compared
  std::uint64_t offset_ = 0;  // offset of the first unread line
  std::uint64_t lines_ = 0;   // number of lines read
  std::string tail_;          // the last bytes before `offset_`
};

}  // namespace adaptdl::sched::tune
