// Explains a job's state in words: picks, from all that a cluster reports about the job, its pods and their events, the
// reason why it does not start or why it failed.
//
// Threading: pure functions of their arguments.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "kube/job.h"

namespace adaptdl::kube {

// Returns what keeps a pod from running, or how it failed, from the pod itself: one line, empty if it is fine.
std::string pod_trouble(const nlohmann::json& pod);

// Describes the pod's unhealthy device, which nodes report from Kubernetes 1.36 on; empty if there is none. The pod
// continues to run, but its program may fail because of the device.
std::string unhealthy_device(const nlohmann::json& pod);

// Returns whether a container waits for this reason because its image cannot be pulled.
bool is_pull_failure(std::string_view reason);

// Rewords the scheduler's message ("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.") in plain words.
std::string plain_unschedulable(std::string_view message);

// Returns one line, empty if nothing needs an explanation. `replicas` are the job's pods; `events` may include those of
// other objects.
std::string job_why(const Job& job, std::span<const Replica> replicas, std::span<const Event> events, Time now);

// Returns whether events could explain more about the job than the job and its pods do.
bool wants_events(const Job& job, std::span<const Replica> replicas);

}  // namespace adaptdl::kube
