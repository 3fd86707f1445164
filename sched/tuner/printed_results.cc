#include "tuner/printed_results.h"

#include <utility>

namespace adaptdl::sched::tune {

PrintedResults::PrintedResults(std::filesystem::path logs, std::string metric)
    : logs_(std::move(logs), 0), metric_(std::move(metric)) {}

void PrintedResults::read(Clock::time_point, bool ended) {
  const auto add = [this](int, std::string_view line) {
    if (const auto result = parse_result(line, metric_)) found_.push_back(*result);
  };
  has_more_ = !ended && logs_.read_some(add, kMaxResultRead);
  if (ended) logs_.finish(add);
}

std::vector<Result> PrintedResults::take() { return std::exchange(found_, {}); }

}  // namespace adaptdl::sched::tune
