// Explains why a job is not starting or why it failed, based on everything that the cluster reports about the job, its
// pods and their events.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "kube/jobs/job.h"

namespace adaptdl::kube {

// Returns, in one line, why a pod is not running or how it failed, according to the pod itself; empty if the pod is
// healthy.
std::string pod_trouble(const nlohmann::json& pod);

// Describes the pod's unhealthy device; empty if there is none. Nodes have reported unhealthy devices since Kubernetes
// 1.36. The pod continues to run, but its program may fail because of the device.
std::string unhealthy_device(const nlohmann::json& pod);

// Returns whether a container that is waiting for this reason cannot start because its image cannot be pulled.
bool is_pull_failure(std::string_view reason);

// Returns the scheduler's message ("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.") in plain words.
std::string plain_unschedulable(std::string_view message);

// Explains the job's state in one line; empty if nothing needs an explanation. `replicas` are the job's pods; `events`
// may include events about other objects.
std::string job_why(const Job& job, std::span<const Replica> replicas, std::span<const Event> events, Time now);

// Returns whether events could explain more than the job and its pods do.
bool wants_events(const Job& job, std::span<const Replica> replicas);

}  // namespace adaptdl::kube
