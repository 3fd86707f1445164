// Whether the replicas of a group make it necessary to restart the job, or fail it.
//
// Only a replica's own program can fail a job. Whatever else ends a replica restarts the job, and so does a failure
// that may be the consequence of a lost node.
//
// Threading: pure functions.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "operator/lifecycle.h"

namespace adaptdl::sched {

// Pause after which a node that does not respond is looked at again.
inline constexpr std::chrono::seconds kNodeCheck{10};

struct GroupEnd {
  enum class Kind {
    kNone,     // the group continues
    kWaits,    // a replica has failed, and it is not known yet why
    kRestart,  // the job must be restarted
    kFailed,   // the job has failed
  };
  Kind kind = Kind::kNone;
  std::string reason, message;           // for kRestart and kFailed
  std::optional<kube::Time> look_again;  // when the answer may change although no event reports anything
};

// `replicas` are the pods of the group by number, null for missing ones. `all_created`: a missing one has existed. The
// group must not have succeeded.
GroupEnd group_end(const JobSituation& situation, const kube::Job& job, const std::vector<const PodFacts*>& replicas,
                   bool all_created);

// Whether the pod's node no longer exists.
bool is_gone(const JobSituation& situation, const PodFacts& pod);
// Whether the node confirms when its pods have ended.
bool responds(const JobSituation& situation, const std::string& node);

}  // namespace adaptdl::sched
