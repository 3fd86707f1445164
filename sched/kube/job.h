// What the objects of a cluster say of a job: the AdaptDLJob itself, the pods that are its replicas, and the events
// about both. Small values for thousands of jobs, taken from objects that may lack anything.
//
// Threading: plain values and pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/job_usage.h"
#include "kube/timestamp.h"

namespace adaptdl::kube {

struct Job {
  std::string name_space, name, uid;
  std::optional<Time> created;
  std::optional<Time> deleted;  // its deletion was asked for
  std::vector<std::string> finalizers;

  std::optional<int> min_replicas, max_replicas;
  bool preemptible = true;
  bool suspend = false;  // it must not have replicas until this is false again

  // Pending Starting Running Stopping Suspended Succeeded Failed; empty: no scheduler has acted on it yet
  std::string phase;
  std::string reason, message;  // of that phase
  std::string condition;        // the message of the condition that changed last; empty if there is none
  std::vector<std::string> allocation;  // a node a replica
  std::optional<int> group;             // counts starts, from 0; the pods' too
  std::optional<int> replicas, ready;
  std::optional<Time> completed;
  nlohmann::json train;  // the hints; null if there are none
  JobUsage usage;

  bool ended() const { return phase == "Succeeded" || phase == "Failed"; }
};
Job parse_job(const nlohmann::json& object);

// A pod of a job.
struct Replica {
  std::string name_space, job, name, uid, node;
  std::string owner;          // the uid of its job
  int rank = -1, group = -1;  // -1: it does not say
  int number = -1;            // in its group, which stays when its rank changes; the rank if it does not say
  int of = 0;                 // how many there are in its group
  std::string container;      // the first
  std::string phase;          // Pending Running Succeeded Failed Unknown
  bool ready = false;
  bool started = false;  // its container has run, so that it has a log
  bool ended = false;    // it has run to an end, for good
  bool leaving = false;  // its deletion was asked for
  bool waits = false;    // for something to be made or mounted, of which only events tell
  int restarts = 0;      // of its container
  std::optional<Time> created;
  // What keeps it from running, or how it failed, in words; empty if there is nothing to say.
  std::string trouble;
};
Replica parse_replica(const nlohmann::json& pod);

struct Event {
  std::string kind, name_space, name;  // of what it is about
  std::string uid;                     // the same; may be empty
  std::string type;                    // Normal or Warning
  std::string reason, message;
  int count = 1;
  std::optional<Time> last;
};
Event parse_event(const nlohmann::json& object);

// The label selector of all pods of all jobs, and of those of one.
inline constexpr const char* kReplicaSelector = "adaptdl=true";
std::string replica_selector(const std::string& job);

}  // namespace adaptdl::kube
