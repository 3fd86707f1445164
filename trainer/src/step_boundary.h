// The step boundary: the one place where a job checkpoints and exits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "batch_size_choice.h"

namespace adaptdl::torch::internal {

// Where a loop stands, for the progress report.
struct LoopPosition {
  const void* loop = nullptr;  // tells loops apart
  std::size_t step = 0;        // steps done in this pass
  std::optional<std::size_t> steps_left;
  std::size_t batch_size = 0;  // samples of a step over all replicas
};

// What a loop has to say to those of the other replicas, and hears from them, beside stops and checkpoints.
struct Wishes {
  bool data_end = false;                // any replica's: the step that begins is the last that it has data for
  std::optional<BatchSize> batch_size;  // rank 0's: to be used from now on
  std::uint32_t loader = 0;             // whose batch size it is
};

// A boundary has three parts, which each replica calls in this order; see AdaptiveDataLoaderHelper::step_boundary.
//
// Gets what was agreed on at the boundary before; nothing at the first one. May be called earlier, between two
// boundaries, to know it sooner: then the boundary gets the same once more.
const Wishes& receive_agreement();
// Goes on, saves, or stops, as agreed.
void settle_boundary();
// Submits what this replica wishes at the next boundary, and reports the progress.
void submit_wishes(const Wishes& wishes, const LoopPosition& position);

// Ends the process with `code`, after flushing its output. Static destructors do not run: threads may still use those
// objects.
void exit_process(int code);

// Calls `handler` instead of ending the process. For tests; it must not return.
void set_exit_handler(std::function<void(int code)> handler);

}  // namespace adaptdl::torch::internal
