// SaveRequests handles requests for a checkpoint without a stop, until the checkpoint is committed.
//
// A replica is asked by SIGUSR1. One that does not handle it would die of it, so it is left alone. Only one replica is
// asked, since all of them save when one wants to: two that notice the signal at different steps would save twice. If
// it ends before there is a checkpoint, another is asked.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "local/checkpoint_watch.h"
#include "local/launch_plan.h"
#include "local/replica.h"
#include "local/run_control.h"

namespace adaptdl::sched {

class SaveRequests {
 public:
  explicit SaveRequests(const LaunchPlan& plan) : plan_(plan), watch_(plan.checkpoints) {}

  // Adds a request. All requests that wait at the same time are answered by the same checkpoint.
  void add(RunRequest request);
  // Asks one of the replicas that can be asked, and answers what can be answered. Must be called often while they run.
  void tick(const std::vector<std::unique_ptr<Replica>>& replicas);
  // Records that a replica reported this checkpoint as committed.
  void reported(const std::filesystem::path& path) { watch_.reported(path); }
  void refuse_all(const std::string& why);
  bool empty() const noexcept { return requests_.empty(); }

 private:
  const LaunchPlan& plan_;
  CheckpointWatch watch_;
  std::vector<RunRequest> requests_;
  std::chrono::steady_clock::time_point since_{};
  std::chrono::steady_clock::time_point looked_{};
  std::optional<int> asked_;  // number of the replica that was asked
};

}  // namespace adaptdl::sched
