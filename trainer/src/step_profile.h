// The time that the batches of the training loader take, on its way to metrics::record_step.
//
// Times may become known late: those of a GPU are read from its events when they have passed, for waiting for them
// would hold up the training thread. Until then their batches queue up here, in order.
//
// Threading: used by the training thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace adaptdl::internal {

// Seconds that may not be known yet: asked at later batches until it answers.
using Seconds = std::function<std::optional<double>()>;

// Takes the time from a call of begin to the next one of end.
class StepTimer {
 public:
  virtual ~StepTimer() = default;
  virtual void begin() = 0;
  virtual Seconds end() = 0;
};

// Replaces the timer, between two batches; null: metrics::now().
void set_step_timer(std::unique_ptr<StepTimer> timer);

// Counts time that the running batch waited for the synchronisation of gradients. Without a running batch it is
// dropped.
void add_sync_time(Seconds seconds);

// What a batch was like.
struct BatchProfile {
  int nodes = 1;
  int replicas = 1;
  std::size_t local_bsz = 0;
  bool accumulation = false;  // no optimizer step
};

void begin_batch();
// Batches that have begun in this process.
std::uint64_t batches_begun() noexcept;
// Ends the batch, and records it; none: it is not like the others, and is left out. Without a running batch it does
// nothing.
void end_batch(const std::optional<BatchProfile>& profile);

}  // namespace adaptdl::internal
