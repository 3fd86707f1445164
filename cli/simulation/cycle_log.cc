#include "simulation/cycle_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"

namespace adaptdl::cli {

namespace fs = std::filesystem;

CycleLog::CycleLog(fs::path file, std::size_t tasks) : file_(std::move(file)), parts_(tasks), finished_(tasks) {
  std::error_code error;
  const fs::file_status status = fs::status(file_, error);
  const auto refuse = [this](int why) {
    throw UsageError(fmt::format("cannot write '{}': {}", file_.string(), std::strerror(why)));
  };
  if (fs::is_directory(status)) refuse(EISDIR);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    whole_.reset(std::tmpfile());
  } else {
    // A symbolic link is kept, and its target is replaced.
    if (fs::exists(status)) file_ = fs::canonical(file_, error);
    if (fs::exists(status) && ::access(file_.c_str(), W_OK) != 0) refuse(errno);
    const fs::path name = file_.parent_path() / fmt::format(".{}.{}", file_.filename().string(), ::getpid());
    ::unlink(name.c_str());  // a killed process with the same ID may have left it
    const int descriptor = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) temporary_ = name;
    if (descriptor >= 0) whole_.reset(::fdopen(descriptor, "w+"));
  }
  if (!whole_) refuse(errno);
}

CycleLog::~CycleLog() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove(temporary_, ignored);
}

void CycleLog::fail(int error) const {
  throw Error(fmt::format("cannot write '{}': {}", file_.string(), std::strerror(error)));
}

// Creates a task's part of the log next to the log file, not in /tmp, which may be small.
CycleLog::File CycleLog::open_part() const {
  if (temporary_.empty()) return File(std::tmpfile());
  std::string name = temporary_.string() + ".XXXXXX";
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  ::unlink(name.c_str());
  return File(::fdopen(descriptor, "w+"));
}

void CycleLog::write(std::FILE* file, const char* data, std::size_t size) const {
  if (std::fwrite(data, 1, size, file) != size) fail(errno);
}

void CycleLog::add(const sched::CycleRecord& record) {
  std::FILE* target = whole_.get();
  if (record.task != next_) {
    File& part = parts_[record.task];
    if (!part) part = open_part();
    if (!part) fail(errno);
    target = part.get();
  }
  const std::string line = cycle_line(record) + '\n';
  write(target, line.data(), line.size());
}

void CycleLog::append(std::FILE* part) {
  if (std::fflush(part) != 0) fail(errno);
  std::rewind(part);
  std::array<char, 1 << 16> buffer;
  while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), part))
    write(whole_.get(), buffer.data(), size);
  if (std::ferror(part) != 0) fail(errno);
}

void CycleLog::finished(std::size_t task) {
  finished_[task] = true;
  while (next_ < finished_.size() && finished_[next_]) {
    ++next_;
    // Appends the cycles that the next task has added so far; add() writes the task's later cycles directly to the
    // file.
    if (next_ < finished_.size() && parts_[next_]) append(parts_[next_].get());
    if (next_ < finished_.size()) parts_[next_].reset();
  }
}

void CycleLog::close() {
  if (std::fflush(whole_.get()) != 0) fail(errno);
  if (temporary_.empty()) {
    const File target(std::fopen(file_.c_str(), "we"));
    if (!target) fail(errno);
    std::rewind(whole_.get());
    std::array<char, 1 << 16> buffer;
    while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), whole_.get()))
      write(target.get(), buffer.data(), size);
    if (std::fflush(target.get()) != 0) fail(errno);
    return;
  }
  if (::fsync(::fileno(whole_.get())) != 0) fail(errno);
  std::error_code error;
  fs::rename(temporary_, file_, error);
  if (error) fail(error.value());
  temporary_.clear();
}

}  // namespace adaptdl::cli
