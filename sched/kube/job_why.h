// Why a job is as it is, in words: what of all that a cluster says of a job, its pods and their events is the reason
// that it does not start, or that it failed.
//
// Threading: pure functions of their arguments.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "kube/job.h"

namespace adaptdl::kube {

// What keeps a pod from running, or how it failed, as far as the pod itself says; empty if nothing does. One line.
std::string pod_trouble(const nlohmann::json& pod);

// Says which device of the pod is unhealthy, as nodes report it from Kubernetes 1.36 on; empty if none is. The pod
// continues to run, but its program may fail because of the device.
std::string unhealthy_device(const nlohmann::json& pod);

// Whether a container waits for this reason because its image cannot be pulled.
bool is_pull_failure(std::string_view reason);

// The scheduler's message ("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.") in plain words.
std::string plain_unschedulable(std::string_view message);

// One line; empty if there is nothing to say. `replicas` are the pods of the job, `events` may hold those of others.
std::string job_why(const Job& job, std::span<const Replica> replicas, std::span<const Event> events, Time now);

// Whether events could say more of the job than it and its pods do.
bool wants_events(const Job& job, std::span<const Replica> replicas);

}  // namespace adaptdl::kube
