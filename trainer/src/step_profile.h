// Measures the time of the training loader's batches for metrics::record_step.
//
// Times may become known late: those of a GPU are read from its events once they have passed, since waiting for them
// would delay the training thread. Until then their batches are queued here, in order.
//
// Threading: used by the training thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace adaptdl::internal {

// Returns seconds, or nullopt as long as they are not known; it is called again at later batches.
using Seconds = std::function<std::optional<double>()>;

// Measures the time from a call of begin to the next call of end.
class StepTimer {
 public:
  virtual ~StepTimer() = default;
  virtual void begin() = 0;
  virtual Seconds end() = 0;
};

// Replaces the timer; must be called between two batches. Null: metrics::now().
void set_step_timer(std::unique_ptr<StepTimer> timer);

// Adds time that the running batch waited for the synchronization of gradients. Does nothing if no batch is running.
void add_sync_time(Seconds seconds);

// The configuration of a batch.
struct BatchProfile {
  int nodes = 1;
  int replicas = 1;
  std::size_t local_bsz = 0;
  bool accumulation = false;  // whether it has no optimizer step
};

void begin_batch();
// The number of batches that have begun in this process.
std::uint64_t batches_begun() noexcept;
// Ends the batch. Records it, unless `profile` is nullopt because it is not like the others. Does nothing outside a
// batch.
void end_batch(const std::optional<BatchProfile>& profile);

}  // namespace adaptdl::internal
