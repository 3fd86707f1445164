// The statistical progress at which the epochs of a data loader with an adaptive batch size end.
#pragma once

#include <cstddef>

namespace adaptdl::internal {

class LoopState;

class EpochProgress {
 public:
  // `batch_size`: the initial batch size. `state` must outlive the object.
  EpochProgress(std::size_t batch_size, const LoopState& state) : batch_size_(batch_size), state_(state) {}

  // Returns the progress at which `epochs` epochs over `samples` samples end.
  double at_end_of(int epochs, std::size_t samples) const;

  // Begins a loop.
  void begin() noexcept { idle_ = {}; }
  // Must be called after each step of the loop. Returns whether the progress has reached the end of the running epoch.
  // Throws if the loop reads more than a whole pass without any progress: Error if the gradients were NaN or infinite,
  // and otherwise UsageError.
  bool reached(std::size_t samples);

 private:
  const std::size_t batch_size_;
  const LoopState& state_;
  // The number of successive steps of this loop without progress, and the position at which they began.
  struct {
    double progress = -1;
    std::size_t steps = 0;
    std::size_t index = 0;
  } idle_;
};

}  // namespace adaptdl::internal
