// Computes the new status of an AdaptDLJob and the patch that updates it.
//
// In addition to the fields of the contract between jobs and schedulers, the operator writes phaseSince (when the phase
// began, or the number of replicas last changed), membership (membership_status.h), usage (kube/job_usage.h),
// attainedService (replica-seconds in earlier Running phases), createdGroup (the last group of which all pods were
// created), retries and retryAfter (consecutive failed starts that were not the job's fault, and the time of the next
// one), unplaceableSince and troubleSince, and the conditions Allocated, Running, Suspended (only of jobs that were
// suspended) and Completed.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "kube/job.h"
#include "kube/timestamp.h"
#include "operator/node_price.h"
#include "policy/policy.h"

namespace adaptdl::sched {

// A job pauses no longer than this, however often its starts failed.
inline constexpr std::chrono::seconds kMaxPause{300};

// Corrects times in the status that are in the future, or unreadable, and pauses longer than kMaxPause: another client
// wrote them, or the clock was set back.
class JobStatus {
 public:
  JobStatus(const nlohmann::json& job, kube::Time now);

  std::string reason() const;
  std::string message() const;
  kube::Time phase_since() const;  // now if unknown
  int retries() const;
  bool created() const;  // whether all pods of the group were created
  std::optional<kube::Time> retry_after() const;
  std::optional<kube::Time> unplaceable_since() const;
  // Returns since when pods of the group cannot start. If `is` is true, the time is set unless it already is; if it is
  // false, the time is cleared.
  kube::Time trouble_since(bool is);

  void set_hints(const nlohmann::json& hints);  // null keeps the previous hints
  void set_allocation(const Allocation& nodes);
  void set_group(int group);
  void set_ready(int replicas);
  void set_membership(const nlohmann::json& membership);
  // The running job has these members from now on.
  void set_members(int replicas);
  void set_created();
  void set_reason(const std::string& reason, const std::string& message);
  void set_unplaceable(bool is);
  // Whether the job's usage says that it holds something.
  bool holds() const;
  // The job holds this, or nothing, since `when`. Nothing changes if there is nothing to account for.
  void hold(const UsageRate& rate, kube::Time when);
  void release(kube::Time when);
  // The job, which holds something, holds this from now on.
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

// Whether the job has no nodes and may get some by first fit. Once the policy has decided that a job must wait, only
// the policy may give it nodes.
bool waits_for_first_fit(const kube::Job& job);

// Returns until when the job must not be started again, after failed starts that were not its fault.
std::optional<kube::Time> retry_after(const nlohmann::json& job);

}  // namespace adaptdl::sched
