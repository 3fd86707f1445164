#include "simulation/simulation_screen.h"

#include <fmt/format.h>
#include <unistd.h>

#include <numeric>

#include "base/printable.h"
#include "terminal/format.h"
#include "terminal/print.h"
#include "terminal/terminal.h"

namespace adaptdl::cli {

std::string progress_text(const SimulationProgress& progress, std::size_t width) {
  const auto count = [](std::size_t number) { return format_count(static_cast<std::int64_t>(number)); };
  std::string text =
      fmt::format("{}/{} simulations  {}/{} jobs  {}", count(progress.finished), count(progress.simulations),
                  count(progress.completed), count(progress.jobs), format_clock(progress.elapsed));
  if (!progress.newest.empty()) text += "  " + progress.newest;
  return truncated(text, width);
}

SimulationScreen::SimulationScreen(std::span<const sched::SimulationTask> tasks, CycleLog* log)
    : log_(log), completed_(tasks.size()), wanted_(is_capable_terminal(STDERR_FILENO)) {
  progress_.simulations = tasks.size();
  for (const sched::SimulationTask& task : tasks) progress_.jobs += task.workload->jobs.size();
  draw();
}

void SimulationScreen::cycle(const sched::CycleRecord& record) {
  const std::lock_guard lock(mutex_);
  if (log_ != nullptr) log_->add(record);
  completed_[record.task] = record.completed;
  if (!wanted_ || Clock::now() - drawn_at_ < kRedrawEvery) return;
  const auto simulated = std::chrono::milliseconds(static_cast<std::int64_t>(record.time * 1000));
  progress_.newest =
      fmt::format("{} {} at {}", printable(record.workload), printable(record.policy), format_clock(simulated));
  draw();
}

void SimulationScreen::finished(std::size_t task, const sched::SimulationResult& result) {
  const std::lock_guard lock(mutex_);
  if (log_ != nullptr) log_->finished(task);
  if (!result.stopped) completed_[task] = result.jobs.size();
  ++progress_.finished;
  draw();
}

void SimulationScreen::draw() {
  if (!wanted_) return;
  drawn_at_ = Clock::now();
  drawn_ = true;
  progress_.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(drawn_at_ - started_);
  progress_.completed = std::accumulate(completed_.begin(), completed_.end(), std::size_t{0});
  const std::size_t width = terminal_width(STDERR_FILENO).value_or(kUsualWidth);
  redraw_line(progress_text(progress_, width - 1));
}

void SimulationScreen::close() noexcept {
  if (!drawn_) return;
  drawn_ = false;
  erase_line();
}

}  // namespace adaptdl::cli
