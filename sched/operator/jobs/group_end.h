// Decides, from the state of the replicas in a job's group, whether the job must be restarted or has failed.
//
// Only a failure of a replica's own program can fail the job. If a replica ends for another reason, the job is
// restarted. The same applies to failures that may be the consequence of a lost node or an unhealthy device.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "operator/jobs/lifecycle.h"

namespace adaptdl::sched {

// Interval at which a node that does not respond is checked again.
inline constexpr std::chrono::seconds kNodeCheck{10};

struct GroupEnd {
  enum class Kind {
    kNone,     // the group continues
    kWaits,    // a replica has failed, but the cause is not known yet
    kRestart,  // the job must be restarted
    kFailed,   // the job has failed
  };
  Kind kind = Kind::kNone;
  std::string reason, message;           // for kRestart and kFailed
  std::optional<kube::Time> look_again;  // when the result may change without an event
};

// `replicas` contains the pods of the group by rank, null for missing pods. `all_created` means that all pods were
// created, so that a missing pod was deleted. REQUIRES that the group has not succeeded.
GroupEnd group_end(const JobSituation& situation, const kube::Job& job, const std::vector<const PodFacts*>& replicas,
                   bool all_created);

// Returns whether the pod's node no longer exists.
bool is_gone(const JobSituation& situation, const PodFacts& pod);
// Returns whether the node can confirm that its pods have ended, because it exists and is ready.
bool responds(const JobSituation& situation, const std::string& node);

}  // namespace adaptdl::sched
