// Plans the actions for one job, as described in lifecycle.h; private to plan_job().
//
// The methods are divided by the phase of the job: job_planner_pending.cc (Pending and Suspended, and the start of a
// group), job_planner_running.cc (Starting and Running) and job_planner_stopping.cc (the end of a group, and Stopping).
// job_planner.cc contains what they share.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "kube/api/timestamp.h"
#include "kube/jobs/job.h"
#include "operator/jobs/job_status.h"
#include "operator/jobs/lifecycle.h"
#include "operator/jobs/members_plan.h"
#include "operator/jobs/membership_status.h"

namespace adaptdl::sched {

class JobPlanner {
 public:
  static constexpr const char* kWhySuspended = "suspended by spec.suspend";

  // Both arguments must outlive the planner.
  JobPlanner(const JobSituation& situation, const LifecycleSettings& settings);

  // REQUIRES that it has not been called before.
  Plan run();

 private:
  // Reasons in a status. kSuspended is also a phase.
  static constexpr const char* kSuspended = "Suspended";
  static constexpr const char* kResumed = "Resumed";
  static constexpr const char* kWhyResumed = "resumed; waiting for nodes";
  // The interval of checks while the members of a job change. They are necessary because no event reports that a change
  // is taking too long.
  static constexpr std::chrono::seconds kMembersCheck{1};
  static constexpr std::chrono::seconds kFirstPause{10};

  bool live(const PodFacts& pod) const;
  void remove(const PodFacts& pod);
  // Removes all pods that have not ended. Returns whether any pod may still be running.
  bool remove_live();
  // Returns the number of the last group of pods; -1 if there was none.
  int last_group() const;
  // Corrects the job's group number if another client has changed it, so that no number is used twice. Returns whether
  // the next step must begin with the corrected number.
  bool correct_group();
  void look_again(kube::Time when);
  void add_event(bool warning, const std::string& reason, const std::string& message);
  // Returns the nodes, or no nodes if the job must not be started on one of them. Nodes that the allocator chose
  // (`chosen`) include cordoned nodes only if the job tolerates the cordon.
  Allocation if_open(const Allocation& nodes, bool chosen) const;
  std::size_t max_replicas() const;
  // Returns the nodes that the job must run on next.
  Allocation next_nodes() const;
  // Collects the pods of the group by number, which is the rank here, and removes all other pods.
  void collect();
  void take_changes(MembersPlan& members);
  // Ends the job if all replicas have succeeded. Returns whether they have.
  bool succeeded();
  void fail(const std::string& reason, const std::string& message);

  // ---- Pending, Suspended

  void pending();
  // REQUIRES that no pod of the job can still be running.
  void suspend();
  void note_suspension();
  // If a job is resumed before all of its replicas have ended, it first waits for them to end.
  void note_resumption();
  void note_waiting(const JobDecision& decision);
  void check_placeable();
  void start(const Allocation& nodes);

  // ---- Starting, Running

  void watch_group();
  // Returns whether the replicas of this group follow generations. The hint alone may be from an earlier group.
  bool is_followed() const;
  // Returns whether a job that has just started may still report that it follows generations. Until then, a change that
  // can wait for the next cycle must not restart the job.
  bool may_follow_soon() const;
  bool may_change_members() const;
  void watch_members();
  // Restarts or fails the job if its replicas make that necessary. Returns whether all other actions must wait.
  bool ended();
  void reallocate();
  void refused(const PodRefusal& refusal);
  void stop_excess();
  // Plans the creation of missing pods and updates the number of ready replicas and the phase.
  void report();
  void check_start();

  // ---- Stopping

  // `pause`: whether repeated stops for this reason make the job pause. `wait`: the minimum pause.
  void stop(const std::string& reason, const std::string& message, const Allocation& next, bool pause,
            std::chrono::seconds wait = {});
  void stopping();
  void follow_last_members();
  // Returns a pod whose node cannot confirm that the pod has ended; null if there is none.
  const PodFacts* on_lost_node() const;

  const JobSituation& at_;
  const LifecycleSettings& settings_;
  const kube::Job job_;
  JobStatus status_;
  std::optional<StoredMembership> membership_;
  std::vector<const PodFacts*> replicas_, others_;  // the pods of the group by rank, and all others
  Plan plan_;
};

}  // namespace adaptdl::sched
