// Builds the pod of a replica of an AdaptDLJob.
//
// The pod is the job's pod template with the additions that the contract between jobs and schedulers requires: the name
// {job}-{uid}-{group}-{number}, labels, annotations with the group and the rank, the node, environment variables
// (ADAPTDL_JOB_ID, ADAPTDL_REPLICA_RANK, …), and a memory-backed /dev/shm, which data loaders require. Programs that
// report progress in Kubeflow Trainer's format send their reports to the supervisor. They read the job's token from a
// file that contains one of the pod's annotations.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "policy/base/policy.h"

namespace adaptdl::sched {

inline constexpr const char* kGroupAnnotation = "adaptdl/group";
inline constexpr const char* kRankAnnotation = "adaptdl/rank";
inline constexpr const char* kReplicasAnnotation = "adaptdl/replicas";
// The number of the replica in its group, which remains the same when its rank changes.
inline constexpr const char* kReplicaAnnotation = "adaptdl/replica";
inline constexpr const char* kTokenAnnotation = "adaptdl/token";
inline constexpr const char* kTokenVariable = "ADAPTDL_SUPERVISOR_TOKEN";

// The cluster administrator's settings, which apply to all jobs.
struct PodSettings {
  std::string supervisor_url;
  // Default requests and limits of the first container, which runs the training program.
  nlohmann::json resources = nlohmann::json::object();
  bool live_rescale = false;  // whether pods receive the environment variables for live rescale
  // Patches for each pod and for each of its containers, applied last. An object is a merge patch (RFC 7386), and an
  // array is a JSON patch (RFC 6902).
  nlohmann::json pod_patch = nlohmann::json::object(), container_patch = nlohmann::json::object();
};

struct PodPlace {
  Allocation nodes;    // the nodes of all replicas, by rank
  int group = 0;       // number of the start, from 0
  int rank = 0;        // the rank that the replica has or, if it joins a running job, will presumably have
  int number = 0;      // number in the group, from 0: the initial rank; higher for replicas that join later
  int generation = 0;  // first generation that may contain the replica
  std::string token;
  std::string hostname;  // label kubernetes.io/hostname of the node; empty: the node's name
};

// Returns the name of a replica's pod.
std::string replica_name(const nlohmann::json& job, int group, int number);

// Returns the id that identifies a replica to the supervisor and its peers (ADAPTDL_REPLICA_ID).
std::string replica_id(int group, int number);
struct ReplicaNumber {
  int group = 0, number = 0;
};
std::optional<ReplicaNumber> parse_replica_id(std::string_view id);
// Returns the port on which the replica of rank 0 listens in this generation.
std::uint16_t master_port(int group, int generation);

// Returns the pod of a replica. REQUIRES 0 <= rank < nodes.size(), or empty `nodes` for a pod that is not created.
// Throws Error if a patch cannot be applied.
nlohmann::json make_replica_pod(const nlohmann::json& job, const PodPlace& place, const PodSettings& settings);

}  // namespace adaptdl::sched
