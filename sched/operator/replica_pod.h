// The pod of one replica of an AdaptDLJob, as the operator creates it.
//
// It is the job's pod template with what the contract between jobs and schedulers adds: the name
// {job}-{uid}-{group}-{rank}, labels and annotations that tell group and rank, the node, the environment
// (ADAPTDL_JOB_ID, ADAPTDL_REPLICA_RANK, …), and memory as /dev/shm, which data loaders need.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "policy/policy.h"

namespace adaptdl::sched {

inline constexpr const char* kGroupAnnotation = "adaptdl/group";
inline constexpr const char* kRankAnnotation = "adaptdl/rank";
inline constexpr const char* kTokenVariable = "ADAPTDL_SUPERVISOR_TOKEN";

// What the cluster's administrator sets for all jobs.
struct PodSettings {
  std::string supervisor_url;
  nlohmann::json resources = nlohmann::json::object();  // of containers that ask for none
  // Changes to each pod and each of its containers: an object is a merge patch (RFC 7386), an array a JSON patch
  // (RFC 6902). Applied last.
  nlohmann::json pod_patch = nlohmann::json::object(), container_patch = nlohmann::json::object();
};

struct ReplicaPlace {
  Allocation nodes;  // of all replicas, by rank
  int group = 0;     // counts the starts of the job
  int rank = 0;
  std::string token;
  std::string hostname;  // the label kubernetes.io/hostname of its node; empty: the node's name
};

// REQUIRES 0 <= rank < nodes.size(), or no nodes for a pod that is only looked at. Throws Error if a patch does not
// apply.
nlohmann::json make_replica_pod(const nlohmann::json& job, const ReplicaPlace& place, const PodSettings& settings);

}  // namespace adaptdl::sched
