// Computes the new status of an AdaptDLJob and the patch that updates it.
//
// In addition to the fields of the contract between jobs and schedulers, the operator writes phaseSince (when the phase
// began, or the number of replicas last changed), membership (membership_status.h), usage (kube/jobs/job_usage.h),
// attainedService (replica-seconds in earlier Running phases), createdGroup (the last group whose pods were all
// created), retries and retryAfter (the number of consecutive failed starts that were not the job's fault, and the time
// of the next start), unplaceableSince and troubleSince, and the conditions Allocated, Running, Suspended (only for
// jobs that were suspended) and Completed.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "kube/api/timestamp.h"
#include "kube/jobs/job.h"
#include "operator/nodes/node_price.h"
#include "policy/base/policy.h"

namespace adaptdl::sched {

// Maximum pause of a job, regardless of how often its starts failed.
inline constexpr std::chrono::seconds kMaxPause{300};

// Replaces times in the status that are invalid or in the future, and shortens pauses to kMaxPause. Such values appear
// if another client wrote them or the clock was set back.
class JobStatus {
 public:
  JobStatus(const nlohmann::json& job, kube::Time now);

  std::string reason() const;
  std::string message() const;
  kube::Time phase_since() const;  // the current time if unknown
  int retries() const;
  bool created() const;  // whether all pods of the group were created
  std::optional<kube::Time> retry_after() const;
  std::optional<kube::Time> unplaceable_since() const;
  // Records whether pods of the group cannot start (`is`). Returns the time since which they cannot start, or the
  // current time if they can.
  kube::Time trouble_since(bool is);

  void set_hints(const nlohmann::json& hints);  // null or an empty object keeps the previous hints
  void set_allocation(const Allocation& nodes);
  void set_group(int group);
  void set_ready(int replicas);
  void set_membership(const nlohmann::json& membership);
  // Records that the running job has this number of members from now on.
  void set_members(int replicas);
  void set_created();
  void set_reason(const std::string& reason, const std::string& message);
  void set_unplaceable(bool is);
  // Returns whether the job holds resources, according to its usage.
  bool holds() const;
  // Record that the job has held resources at this rate, or no resources, since `when`. These functions have no effect
  // if there is nothing to account for.
  void hold(const UsageRate& rate, kube::Time when);
  void release(kube::Time when);
  // Records that the job holds resources at this rate from now on. REQUIRES holds().
  void change_hold(const UsageRate& rate);
  // Begins a new phase.
  void set_phase(const std::string& phase, const std::string& reason, const std::string& message);
  void start(int group, const Allocation& nodes, const std::string& why);
  void stop(const std::string& reason, const std::string& message, const Allocation& next, int retries,
            std::chrono::seconds wait);
  void end_pause();
  void finish(const std::string& phase, const std::string& reason, const std::string& message);

  // Returns the merge patch that turns the job's status into this one, or null if they are equal.
  nlohmann::json patch() const;

 private:
  void correct_time(const char* name, std::chrono::seconds ahead);
  void set_conditions(nlohmann::json& status) const;

  const nlohmann::json before_;
  nlohmann::json after_;
  const kube::Time now_;
};

// Returns the replica-seconds that the job has used until `now`.
double attained_service(const nlohmann::json& job, kube::Time now);

// Returns whether the job has no nodes and may receive some by first fit. Once the policy has decided that a job must
// wait, only the policy may allocate nodes to it.
bool waits_for_first_fit(const kube::Job& job);

// Returns the time before which the job must not be started again, after failed starts that were not its fault.
std::optional<kube::Time> retry_after(const nlohmann::json& job);

}  // namespace adaptdl::sched
