#include "tuner/trial_results.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace adaptdl::sched::tune {
namespace {

// For report() to write what the program has printed already.
constexpr std::chrono::seconds kHoldBack{1};

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
  if (all)
    logs_.finish(hold);
  else
    logs_.read(hold);
  read_file(results);
  if (input_) held_.clear();
  while (!held_.empty() && (all || now - held_.front().since >= kHoldBack)) {
    results.push_back(numbered(held_.front().result));
    held_.pop_front();
  }
  return results;
}

void TrialResults::read_file(std::vector<Result>& results) {
  if (!input_) input_ = Fd(::open(file_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!input_) return;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t size = ::read(input_.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    lines_.feed({buffer.data(), static_cast<std::size_t>(size)}, [&](std::string_view line, bool) {
      if (const auto result = parse_result(line, metric_)) results.push_back(numbered(*result));
    });
  }
}

Result TrialResults::numbered(Result result) {
  ++count_;
  if (!result.step) result.step = count_;
  return result;
}

}  // namespace adaptdl::sched::tune
