// Requests for a checkpoint without a stop, from asking the replicas until it is committed.
//
// SIGUSR1 asks a replica; one that does not handle it would die of it, so it is left alone. One replica is asked, as
// all of them save where one wants to: two that take notice at different steps would save twice. If it ends before
// there is a checkpoint, another is asked.
//
// Threading: the launcher's thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "local/checkpoint_watch.h"
#include "local/launch_plan.h"
#include "local/local_replica.h"
#include "local/run_control.h"

namespace adaptdl::sched {

class SaveRequests {
 public:
  explicit SaveRequests(const LaunchPlan& plan) : plan_(plan), watch_(plan.checkpoints) {}

  // Takes a request. Of several at a time all are answered by the same checkpoint.
  void add(RunRequest request);
  // Asks one of the replicas that can be asked by now and answers what can be answered. To be called in short
  // intervals while they run.
  void tick(const std::vector<std::unique_ptr<LocalReplica>>& replicas);
  // A replica said that it committed this one.
  void reported(const std::filesystem::path& path) { watch_.reported(path); }
  void refuse_all(const std::string& why);
  bool empty() const noexcept { return requests_.empty(); }

 private:
  const LaunchPlan& plan_;
  CheckpointWatch watch_;
  std::vector<RunRequest> requests_;
  std::chrono::steady_clock::time_point since_{};
  std::chrono::steady_clock::time_point looked_{};
  std::optional<int> asked_;  // the number of the replica
};

}  // namespace adaptdl::sched
