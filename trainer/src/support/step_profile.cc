#include "support/step_profile.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "adaptdl/metrics.h"
#include "support/device_time.h"

namespace adaptdl::internal {

namespace {

// The maximum number of batches whose times are not known yet. A GPU is never that far behind. Beyond the limit, the
// oldest batch is dropped.
constexpr std::size_t kMaxPending = 1000;

struct Pending {
  BatchProfile profile;
  Seconds total;
  std::vector<Seconds> syncs;  // times that are not known yet
  double sync = 0;             // sum of the times that are known

  // Records the batch if its times are known, and returns whether they are.
  bool record() {
    std::erase_if(syncs, [&](const Seconds& later) {
      const auto seconds = later();
      sync += seconds.value_or(0);
      return seconds.has_value();
    });
    if (!syncs.empty()) return false;
    const auto seconds = total();
    if (!seconds) return false;
    // The time is useless if the clock was set back or has too coarse a resolution.
    if (*seconds <= 0) return true;
    const auto& [nodes, replicas, local_bsz, accumulation] = profile;
    metrics::record_step(nodes, replicas, local_bsz, *seconds,
                         accumulation ? std::nullopt : std::optional(std::clamp(sync, 0.0, *seconds)));
    return true;
  }
};

struct Recorder {
  std::unique_ptr<StepTimer> timer = make_step_timer(at::kCPU);
  bool running = false;
  std::uint64_t begun = 0;
  std::vector<Seconds> syncs;
  std::deque<Pending> pending;
};

// Never destroyed: events that are waiting for a GPU must not be destroyed after LibTorch's own statics.
Recorder& recorder() {
  static auto* const instance = new Recorder;
  return *instance;
}

}  // namespace

void set_step_timer(std::unique_ptr<StepTimer> timer) {
  auto& self = recorder();
  self.timer = timer ? std::move(timer) : make_step_timer(at::kCPU);
  self.running = false;
}

void add_sync_time(Seconds seconds) {
  if (recorder().running) recorder().syncs.push_back(std::move(seconds));
}

void begin_batch() {
  auto& self = recorder();
  self.running = true;
  ++self.begun;
  self.syncs.clear();
  self.timer->begin();
}

std::uint64_t batches_begun() noexcept { return recorder().begun; }

void end_batch(const std::optional<BatchProfile>& profile) {
  auto& self = recorder();
  if (!std::exchange(self.running, false)) return;
  auto total = self.timer->end();
  if (profile) self.pending.push_back({*profile, std::move(total), std::move(self.syncs)});
  self.syncs.clear();
  while (!self.pending.empty() && self.pending.front().record()) self.pending.pop_front();
  if (self.pending.size() > kMaxPending) self.pending.pop_front();
}

}  // namespace adaptdl::internal
