#include "tuner/report_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "adaptdl/error.h"

namespace adaptdl::sched::tune {

ReportFile::ReportFile(std::filesystem::path file, std::string metric)
    : file_(std::move(file)), metric_(std::move(metric)) {}

// Each line is written by one write(), so the last one is complete when the run has ended.
void ReportFile::read(Clock::time_point, bool) {
  has_more_ = false;
  if (!input_) input_ = Fd(::open(file_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!input_ && errno != ENOENT)
    throw Error(fmt::format("cannot read file '{}': {}", file_.string(), std::strerror(errno)));
  if (!input_) return;
  std::array<char, 65536> buffer;
  for (const std::uint64_t end = offset_ + kMaxResultRead; offset_ < end;) {
    const ssize_t size = ::pread(input_.get(), buffer.data(), buffer.size(), static_cast<off_t>(offset_));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw Error(fmt::format("cannot read file '{}': {}", file_.string(), std::strerror(errno)));
    if (size == 0) return;
    offset_ += static_cast<std::uint64_t>(size);
    lines_.feed({buffer.data(), static_cast<std::size_t>(size)}, [&](std::string_view line, bool) {
      if (const auto result = parse_result(line, metric_)) found_.push_back(*result);
    });
  }
  has_more_ = true;
}

std::vector<Result> ReportFile::take() { return std::exchange(found_, {}); }

}  // namespace adaptdl::sched::tune
