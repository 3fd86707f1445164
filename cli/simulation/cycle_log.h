// Every cycle of simulations as a file of JSON lines, written as it goes and read back for pictures. docs/formats.md
// has the format.
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simulator/simulator.h"

namespace adaptdl::cli {

// One cycle as a line, without its newline.
std::string cycle_line(const sched::CycleRecord& record);

// Throws Error on a line that is not of the format, saying what is wrong with it.
sched::CycleRecord parse_cycle(const std::string& line);

// The file, in the order of the tasks however they run: the same simulations give the same bytes. It appears under its
// name, whole, when close() has been called; until then, and if it never is, what was there before is untouched.
//
// Errors: Error, naming the file, where it cannot be written. Threading: one thread at a time.
class CycleLog {
 public:
  // Throws UsageError if `file` cannot be made, or is a directory. What is no regular file (a pipe, a device) is
  // written to at close().
  CycleLog(std::filesystem::path file, std::size_t tasks);
  ~CycleLog();
  CycleLog(const CycleLog&) = delete;
  CycleLog& operator=(const CycleLog&) = delete;

  void add(const sched::CycleRecord& record);
  void finished(std::size_t task);  // no more cycles of it will come
  // REQUIRES finished() of every task.
  void close();

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, CloseFile>;

  File open_part() const;
  void write(std::FILE* file, const char* data, std::size_t size) const;
  void append(std::FILE* part);
  [[noreturn]] void fail(int error) const;

  std::filesystem::path file_;
  std::filesystem::path temporary_;  // empty once it has its name, or if there is none
  File whole_;
  std::vector<File> parts_;  // of each task that has begun and is not in `whole_` yet
  std::vector<bool> finished_;
  std::size_t next_ = 0;  // the first task that is not in `whole_` completely
};

// Calls `visit` with each cycle of a file. Throws Error: "FILE:LINE: what is wrong", also for an empty file.
void read_cycle_log(const std::filesystem::path& file, const std::function<void(sched::CycleRecord&)>& visit);

}  // namespace adaptdl::cli
