#include "loop/progress_reporter.h"

#include <utility>

#include "adaptdl/metrics.h"
#include "adaptdl/progress.h"
#include "adaptdl/torch/epoch.h"

namespace adaptdl::internal {

namespace {

// The progress of a program that does not measure the gradient noise scale stays 0, and is not reported.
void set_statistical_progress() {
  const auto target = metrics::target_progress();
  const double done = metrics::progress();
  if (!target || done <= 0) return;
  progress::set("progress", done);
  progress::set("targetProgress", *target);
}

}  // namespace

void ProgressReporter::report(const LoopProgress& loop, int replicas) {
  const auto epoch = current_epoch();
  if (epoch) progress::set("epoch", *epoch);
  progress::set("step", static_cast<double>(loop.step));
  if (loop.steps_left) progress::set("steps", static_cast<double>(loop.step + *loop.steps_left));
  progress::set("batch_size", static_cast<double>(loop.batch_size));
  progress::set("replicas", replicas);
  if (metrics::in_use()) set_statistical_progress();
  if (const auto rate = throughput(loop.loop, loop.samples); rate > 0) {
    progress::set("samples_per_s", rate);
    if (const auto goodput = metrics::in_use() ? metrics::goodput_function() : std::nullopt)
      progress::set("goodput", rate * goodput->efficiency(static_cast<double>(loop.batch_size)));
  }
  progress::report();
}

// Counts a step of `samples` samples that ends now. Returns the samples per second, or 0 if they are not known. The
// first step of a loop only starts the clock, because the time of that step includes other work.
double ProgressReporter::throughput(const void* loop, std::size_t samples) {
  const auto now = Clock::now();
  const std::chrono::duration<double> elapsed = now - last_;
  last_ = now;
  if (std::exchange(loop_, loop) != loop) {
    seconds_ = samples_ = 0;
    return 0;
  }
  constexpr double kKeep = 0.95;
  seconds_ = kKeep * seconds_ + elapsed.count();
  samples_ = kKeep * samples_ + static_cast<double>(samples);
  return seconds_ > 0 ? samples_ / seconds_ : 0;
}

}  // namespace adaptdl::internal
