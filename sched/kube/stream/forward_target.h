// Finds the target of a port-forward: a pod and its port. Only `find_target` sends requests to the server.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "kube/stream/port_forward.h"

namespace adaptdl::kube {

struct ForwardTarget {
  std::string pod;
  std::uint16_t port = 0;
};

// Returns a pod's port. `port` is a number or the name of a container port; if it is empty, the first container port is
// returned. Throws Error.
std::uint16_t port_of_pod(const nlohmann::json& pod, const std::string& port);

// Returns the pod port (a number or a name) behind a service's port. `port` is a number or a name; if it is empty, the
// service's first port is used. Throws Error.
std::string target_port_of_service(const nlohmann::json& service, const std::string& port);

// Returns the label selector of a service's pods, "key=value,…". Throws Error for a service without a selector.
std::string selector_of_service(const nlohmann::json& service);

bool is_ready(const nlohmann::json& pod);

// Throws ApiError, http::ConnectionError, and Error if there is no such port or no ready pod.
ForwardTarget find_target(Client& client, const ForwardOptions& options);

}  // namespace adaptdl::kube
