// Reports how far training has progressed: epoch, step, batch size, throughput and goodput, through adaptdl/progress.h.
//
// Threading: only the training thread may use the class.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

namespace adaptdl::internal {

// How far a loop has progressed at a step boundary.
struct LoopProgress {
  const void* loop = nullptr;  // identifies the loop
  std::size_t step = 0;        // number of steps done in this pass
  std::optional<std::size_t> steps_left;
  std::size_t batch_size = 0;  // samples per step across all replicas
  std::size_t samples = 0;     // samples of all batches since the previous boundary
};

class ProgressReporter {
 public:
  // Must be called at each boundary, by one replica of the job.
  void report(const LoopProgress& loop, int replicas);

 private:
  using Clock = std::chrono::steady_clock;

  double throughput(const void* loop, std::size_t samples);

  // These members measure the throughput, which is smoothed over a few dozen steps of a loop.
  const void* loop_ = nullptr;
  Clock::time_point last_ = Clock::now();
  double seconds_ = 0, samples_ = 0;
};

}  // namespace adaptdl::internal
