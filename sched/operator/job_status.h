// The status of an AdaptDLJob while the operator decides on it: what it is, what it becomes, and the difference.
//
// Besides the contract's fields it has, of ours: phaseSince (when the phase began), attainedService (replica-seconds
// in Running before this phase), createdGroup (the last group of which all pods were created), retries and retryAfter
// (starts in a row that failed through no fault of the job, and when to try again), unplaceableSince and troubleSince,
// and the conditions Allocated, Running and Completed.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "kube/timestamp.h"
#include "policy/policy.h"

namespace adaptdl::sched {

class JobStatus {
 public:
  JobStatus(const nlohmann::json& job, kube::Time now);

  std::string reason() const;
  std::string message() const;
  kube::Time phase_since() const;  // now, if that is not known
  int retries() const;
  bool created() const;  // all pods of the group were there once
  std::optional<kube::Time> unplaceable_since() const;
  // Since when pods of the group cannot start. Begins now if there is none yet, and is forgotten where `is` is false.
  kube::Time trouble_since(bool is);

  void set_hints(const nlohmann::json& hints);  // null leaves them as they are
  void set_allocation(const Allocation& nodes);
  void set_ready(int replicas);
  void set_created();
  void set_reason(const std::string& reason, const std::string& message);
  void set_unplaceable(bool is);
  // A phase begins.
  void set_phase(const std::string& phase, const std::string& reason, const std::string& message);
  void start(int group, const Allocation& nodes, const std::string& why);
  void stop(const std::string& reason, const std::string& message, const Allocation& next, int retries,
            std::chrono::seconds wait);
  void end_pause();
  void finish(const std::string& phase, const std::string& reason, const std::string& message);

  // The merge patch from the status that the job has to this one. Null if they are equal.
  nlohmann::json patch() const;

 private:
  void set_conditions(nlohmann::json& status) const;

  const nlohmann::json before_;
  nlohmann::json after_;
  const kube::Time now_;
};

// Replica-seconds that a job has held so far, on the clock of `now`.
double attained_service(const nlohmann::json& job, kube::Time now);

}  // namespace adaptdl::sched
