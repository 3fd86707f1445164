// The step boundary: the one place where a job checkpoints and exits.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

namespace adaptdl::torch::internal {

// Where a loop stands, for the progress report.
struct LoopPosition {
  const void* loop = nullptr;  // tells loops apart
  std::size_t step = 0;        // steps done in this pass
  std::optional<std::size_t> steps_left;
  std::size_t batch_size = 0;  // samples of a step over all replicas
};

// Agrees with all replicas to go on, to save, or to stop; see AdaptiveDataLoaderHelper::step_boundary.
void step_boundary(const LoopPosition& position);

// Ends the process with `code`, after flushing its output. Static destructors do not run: threads may still use those
// objects.
void exit_process(int code);

// Calls `handler` instead of ending the process. For tests; it must not return.
void set_exit_handler(std::function<void(int code)> handler);

}  // namespace adaptdl::torch::internal
