#include "view/time_left.h"

#include <algorithm>
#include <cmath>

#include "view/status_line.h"

namespace adaptdl::cli {
namespace {

constexpr double kMaxLeft = 1e9;  // seconds

std::optional<std::chrono::milliseconds> milliseconds_left(double seconds) {
  if (!(seconds >= 0) || seconds > kMaxLeft) return std::nullopt;
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

}  // namespace

std::optional<std::chrono::milliseconds> TimeLeft::update(const sched::RunStatus& status, Time now) {
  if (const auto left = progress_number(status.progress, "remaining_s")) return milliseconds_left(*left);
  const auto done = progress_number(status.progress, "progress");
  const auto target = progress_number(status.progress, "targetProgress");
  if (!done || !target) return std::nullopt;
  if (!first_ || first_->replicas != status.replicas || *done < last_->progress)
    first_ = last_ = Mark{status.replicas, *done, now};
  if (*done > last_->progress) last_ = Mark{status.replicas, *done, now};
  if (*done >= *target) return std::chrono::milliseconds(0);
  const double way = last_->progress - first_->progress;
  if (way <= 0) return std::nullopt;
  const double took = std::chrono::duration<double>(last_->time - first_->time).count();
  const double since = std::chrono::duration<double>(now - last_->time).count();
  return milliseconds_left(std::max(0.0, (*target - *done) * took / way - since));
}

}  // namespace adaptdl::cli
