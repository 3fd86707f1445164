#include "loop/epoch_progress.h"

#include <fmt/format.h>

#include "adaptdl/error.h"
#include "adaptdl/metrics.h"
#include "loop/loop_state.h"
#include "loop/step_boundary.h"

namespace adaptdl::internal {

namespace {

// A loop that has made no progress after this many steps and a whole pass is assumed never to make any.
constexpr std::size_t kIdleSteps = 50;

}  // namespace

double EpochProgress::at_end_of(int epochs, std::size_t samples) const {
  return static_cast<double>(samples) * epochs / static_cast<double>(batch_size_);
}

bool EpochProgress::reached(std::size_t samples) {
  const auto progress = metrics::progress();
  const auto& position = state_.position;
  if (progress != idle_.progress) idle_ = {progress, 0, position.index()};
  if (++idle_.steps > kIdleSteps && position.index() >= idle_.index + samples) {
    if (step_is_invalid())
      throw Error(
          fmt::format("data loader '{}' made no progress in a whole pass, because all gradients were NaN or "
                      "infinite; lower the learning rate and start from an earlier checkpoint",
                      state_.name()));
    throw UsageError(
        fmt::format("data loader '{}' made no progress in a whole pass, so its epoch would never end; give "
                    "AdaptiveDataParallel an Adaptive<> optimizer, and call its step() after each backward pass",
                    state_.name()));
  }
  return progress >= at_end_of(position.epoch() + 1, samples);
}

}  // namespace adaptdl::internal
