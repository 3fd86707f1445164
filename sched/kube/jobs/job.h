// The state of a job as its cluster reports it: the AdaptDLJob itself, the pods that are its replicas, and the events
// about both. The values are small, so that thousands of jobs fit into memory. Any field of the objects may be missing.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/api/timestamp.h"
#include "kube/jobs/job_usage.h"

namespace adaptdl::kube {

struct Job {
  std::string name_space, name, uid;
  std::optional<Time> created;
  std::optional<Time> deleted;  // when its deletion was requested
  std::vector<std::string> finalizers;

  std::optional<int> min_replicas, max_replicas;
  bool preemptible = true;
  bool suspend = false;  // the job must not have replicas while this is true

  // One of Pending Starting Running Stopping Suspended Succeeded Failed; empty until a scheduler has acted on the job.
  std::string phase;
  std::string reason, message;          // why the job is in this phase
  std::string condition;                // message of the newest condition that has one; may be empty
  std::vector<std::string> allocation;  // one node name per replica
  std::optional<int> group;             // number of earlier starts of the job; its pods record this number, too
  std::optional<int> replicas, ready;
  std::optional<Time> completed;
  nlohmann::json train;  // the training hints; null if there are none
  JobUsage usage;

  bool ended() const { return phase == "Succeeded" || phase == "Failed"; }
};
Job parse_job(const nlohmann::json& object);

// A pod of a job.
struct Replica {
  std::string name_space, job, name, uid, node;
  std::string owner;          // uid of its job
  int rank = -1, group = -1;  // -1 if the pod has no annotation
  int number = -1;            // number in its group; unlike the rank, it never changes; default: the rank
  int of = 0;                 // number of replicas in its group; 0 if unknown
  std::string container;      // the first container
  std::string phase;          // Pending Running Succeeded Failed Unknown
  bool ready = false;
  bool started = false;  // its container has run and has a log
  bool ended = false;    // the pod has ended and will not restart
  bool leaving = false;  // its deletion was requested
  bool waits = false;    // on a node but not started; only events report why
  int restarts = 0;      // maximum among its containers
  std::optional<Time> created;
  // Why the pod is not running, or how it failed; empty if it is healthy.
  std::string trouble;
};
Replica parse_replica(const nlohmann::json& pod);

struct Event {
  std::string kind, name_space, name;  // the object that the event is about
  std::string uid;                     // uid of that object; may be empty
  std::string type;                    // Normal or Warning
  std::string reason, message;
  int count = 1;
  std::optional<Time> last;
};
Event parse_event(const nlohmann::json& object);

// The label selectors for the pods of all jobs and for one job's pods.
inline constexpr const char* kReplicaSelector = "adaptdl=true";
std::string replica_selector(const std::string& job);

}  // namespace adaptdl::kube
