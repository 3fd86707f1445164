// Measures the time of the training loader's batches for metrics::record_step.
//
// Times may become known late: GPU times are read from events once the GPU has reached the events, because waiting for
// them would delay the training thread. Until then, the batches are queued here in order.
//
// Threading: only the training thread may call these functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace adaptdl::internal {

// Returns a time in seconds, or nullopt if it is not known yet. In the latter case, the function is called again at a
// later batch.
using Seconds = std::function<std::optional<double>()>;

// Measures the time from a call of begin to the next call of end.
class StepTimer {
 public:
  virtual ~StepTimer() = default;
  virtual void begin() = 0;
  virtual Seconds end() = 0;
};

// Replaces the timer. Null selects metrics::now(). Must be called between two batches.
void set_step_timer(std::unique_ptr<StepTimer> timer);

// Adds time for which the running batch waited for the synchronization of gradients. Does nothing if no batch is
// running.
void add_sync_time(Seconds seconds);

// The configuration of a batch.
struct BatchProfile {
  int nodes = 1;
  int replicas = 1;
  std::size_t local_bsz = 0;
  bool accumulation = false;  // whether the batch has no optimizer step
};

void begin_batch();
// Returns the number of batches that have begun in this process.
std::uint64_t batches_begun() noexcept;
// Ends the batch. Records its time, unless `profile` is nullopt because the batch is atypical. Does nothing outside a
// batch.
void end_batch(const std::optional<BatchProfile>& profile);

}  // namespace adaptdl::internal
