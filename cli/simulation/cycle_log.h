// Stores every cycle of simulations in a file of JSON lines, which is written during the simulations and read back for
// plots. docs/formats.md describes the format.
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

// Returns one cycle as a line, without its newline.
std::string cycle_line(const sched::CycleRecord& record);

// Parses one line. Throws Error with the reason if the line does not have the format.
sched::CycleRecord parse_cycle(const std::string& line);

// The file has the cycles in the order of the tasks, however they run, so the same simulations give the same bytes. It
// appears under its name, complete, when close() is called; until then, an existing file is untouched.
//
// Errors: Error, which names the file, if it cannot be written. Threading: used by one thread at a time.
class CycleLog {
 public:
  // Throws UsageError if `file` cannot be created or is a directory. A file that is not regular (a pipe, a device) is
  // written at close().
  CycleLog(std::filesystem::path file, std::size_t tasks);
  ~CycleLog();
  CycleLog(const CycleLog&) = delete;
  CycleLog& operator=(const CycleLog&) = delete;

  void add(const sched::CycleRecord& record);
  void finished(std::size_t task);  // no more cycles of this task follow
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
  std::filesystem::path temporary_;  // empty once it is renamed, or if there is none
  File whole_;
  std::vector<File> parts_;  // of each task that has begun and is not in `whole_` yet
  std::vector<bool> finished_;
  std::size_t next_ = 0;  // the first task that is not complete in `whole_`
};

// Calls `visit` with each cycle of a file. Throws Error ("FILE:LINE: REASON"), also for an empty file.
void read_cycle_log(const std::filesystem::path& file, const std::function<void(sched::CycleRecord&)>& visit);

}  // namespace adaptdl::cli
