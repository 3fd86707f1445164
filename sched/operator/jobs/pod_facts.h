// Reads the properties of a job's pod that the operator needs: which replica it is, its node, and how it ended.
//
// Two kinds of ends are not failures of the job: the pod was ended by something other than its program (an eviction, a
// preemption, a deletion, a node that refused it or is gone), or the program exited with code 143, which means that it
// saved a checkpoint on request. (Exit code 143 is a failure of jobs that are not preemptible; see group_end.cc.)
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "kube/api/timestamp.h"

namespace adaptdl::sched {

enum class PodEnd {
  kNone,          // the pod has not ended
  kSucceeded,     // every container exited with code 0
  kCheckpointed,  // the program exited with code 143
  kLost,          // something other than the program ended the pod
  kFailed,        // the program failed
};

// The problem that keeps a pod from running.
enum class PodTrouble { kNone, kUnscheduled, kImage, kContainer, kVolume };

struct PodFacts {
  std::string name, uid, node, ip;
  int group = -1;        // from the pod's name, which never changes; -1 if it is not the name of a replica
  int number = -1;       // also from the name; unique in the group; the initial rank unless the replica joined later
  int rank = -1;         // from the pod's annotation or, if it is missing, the number
  int replicas = 0;      // number of replicas of the job, from the pod's annotation
  std::string token;     // the job's token, from the pod's environment
  bool leaving = false;  // the pod is terminating
  bool killed = false;   // the pod is terminating without a grace period
  bool running = false;  // all containers run
  PodEnd end = PodEnd::kNone;
  std::string reason;             // for kFailed: PodFailure or OOMKilled
  bool unhealthy_device = false;  // for kFailed: a device that the pod used may be the cause
  std::optional<kube::Time> created;
  std::optional<kube::Time> ended;       // when the first container failed
  std::optional<kube::Time> last_ended;  // when the last container ended; empty if that is not known
  PodTrouble trouble = PodTrouble::kNone;
  std::string message;  // describes how the pod ended, or its problem

  // Returns whether the pod has not ended.
  bool live() const { return end == PodEnd::kNone; }
};

// Returns a replica's owner reference to its job, or null if the pod is not a replica. The operator ignores other pods
// of a job, such as those that `adaptdl cp` creates.
const nlohmann::json& owner_of(const nlohmann::json& pod);

PodFacts parse_pod(const nlohmann::json& pod);

}  // namespace adaptdl::sched
