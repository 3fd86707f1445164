// Stores every cycle of simulations as JSON lines in a file, which is written during the simulations and read back for
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

// Returns one cycle as a line, without the newline.
std::string cycle_line(const sched::CycleRecord& record);

// Parses one line. Throws Error, stating the reason, if the line is not in this format.
sched::CycleRecord parse_cycle(const std::string& line);

// The file contains the cycles in task order, regardless of the order in which the tasks run, so the same simulations
// produce the same bytes. The complete file appears under its name when close() is called; until then, an existing file
// is untouched.
//
// Errors: throws Error, naming the file, if it cannot be written.
class CycleLog {
 public:
  // Throws UsageError if `file` cannot be created or is a directory. A pipe or device is written to only by close().
  CycleLog(std::filesystem::path file, std::size_t tasks);
  ~CycleLog();
  CycleLog(const CycleLog&) = delete;
  CycleLog& operator=(const CycleLog&) = delete;

  void add(const sched::CycleRecord& record);
  void finished(std::size_t task);  // no more cycles of this task will follow
  // REQUIRES that finished() has been called for every task.
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
  std::filesystem::path temporary_;  // empty after the rename, or if the file is a pipe or a device
  File whole_;
  std::vector<File> parts_;  // one per task; null unless the task has cycles that are not in `whole_` yet
  std::vector<bool> finished_;
  std::size_t next_ = 0;  // the first task that is not complete in `whole_`
};

// Calls `visit` with each cycle of a file. Throws Error ("FILE:LINE: REASON") if the file is empty or invalid.
void read_cycle_log(const std::filesystem::path& file, const std::function<void(sched::CycleRecord&)>& visit);

}  // namespace adaptdl::cli
