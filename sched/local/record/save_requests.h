// SaveRequests handles requests to save a checkpoint while the run continues. A request ends when the checkpoint is
// committed.
//
// SIGUSR1 asks a replica to save. A replica that does not handle the signal would be killed by it, and is therefore not
// asked. Only one replica is asked, since all replicas save when one of them requests it. If two replicas were asked
// and noticed the signal at different steps, all replicas would save twice. If the replica ends before there is a
// checkpoint, another replica is asked.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "local/base/checkpoint_watch.h"
#include "local/base/launch_plan.h"
#include "local/record/run_control.h"
#include "local/replica/replica.h"

namespace adaptdl::sched {

class SaveRequests {
 public:
  explicit SaveRequests(const LaunchPlan& plan) : plan_(plan), watch_(plan.checkpoints) {}

  // Adds a request. All requests that are waiting at the same time are satisfied by the same checkpoint.
  void add(RunRequest request);
  // Asks a replica to save if there are requests and no replica has been asked yet, and answers the requests that can
  // be answered. Must be called at short intervals while the replicas are running.
  void tick(const std::vector<std::unique_ptr<Replica>>& replicas);
  // Records that a replica reported this checkpoint as committed.
  void reported(const std::filesystem::path& path) { watch_.reported(path); }
  // Records that a replica could not save the checkpoint for which it was asked.
  void failed(int replica, const std::string& why);
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
