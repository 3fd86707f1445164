#include "tuner/trial_results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "adaptdl/error.h"

namespace adaptdl::sched::tune {
namespace {

// For report() to write what the program has printed already.
constexpr std::chrono::seconds kHoldBack{1};
// Bytes that one call reads of each file, so that a backlog does not block the caller.
constexpr std::uint64_t kMaxRead = std::uint64_t{1} << 20;

}  // namespace

TrialResults::TrialResults(std::filesystem::path file, std::filesystem::path logs, std::string metric)
    : file_(std::move(file)), metric_(std::move(metric)), logs_(std::move(logs), 0) {}

std::vector<Result> TrialResults::read() { return collect(false); }

std::vector<Result> TrialResults::finish() { return collect(true); }

std::vector<Result> TrialResults::collect(bool all) {
  std::vector<Result> results;
  const auto now = std::chrono::steady_clock::now();
  const auto hold = [&](int, std::string_view line) {
    if (const auto result = parse_result(line, metric_)) held_.push_back({now, *result});
  };
  has_more_ = false;
  if (all)
    logs_.finish(hold);
  else
    has_more_ = logs_.read_some(hold, kMaxRead);
  read_file(results);
  if (has_file_) held_.clear();
  while (!held_.empty() && (all || now - held_.front().since >= kHoldBack)) {
    results.push_back(held_.front().result);
    held_.pop_front();
  }
  return results;
}

void TrialResults::close() {
  input_.reset();
  logs_.close();
}

void TrialResults::read_file(std::vector<Result>& results) {
  if (!input_) input_ = Fd(::open(file_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!input_ && errno != ENOENT) throw Error(fmt::format("cannot read {}: {}", file_.string(), std::strerror(errno)));
  if (!input_) return;
  has_file_ = true;
  std::array<char, 65536> buffer;
  for (const std::uint64_t end = offset_ + kMaxRead; offset_ < end;) {
    const ssize_t size = ::pread(input_.get(), buffer.data(), buffer.size(), static_cast<off_t>(offset_));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw Error(fmt::format("cannot read {}: {}", file_.string(), std::strerror(errno)));
    if (size == 0) return;
    offset_ += static_cast<std::uint64_t>(size);
    lines_.feed({buffer.data(), static_cast<std::size_t>(size)}, [&](std::string_view line, bool) {
      if (const auto result = parse_result(line, metric_)) results.push_back(*result);
    });
  }
  has_more_ = true;
}

}  // namespace adaptdl::sched::tune
