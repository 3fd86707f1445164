// Which pod and port a port-forward leads to.
//
// Pure but for `find_target`, which asks the server.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "kube/port_forward.h"

namespace adaptdl::kube {

struct ForwardTarget {
  std::string pod;
  std::uint16_t port = 0;
};

// A pod's port by number or by a container port's name; empty: the first that a container has. Throws Error.
std::uint16_t port_of_pod(const nlohmann::json& pod, const std::string& port);

// What stands for a service's port (by number or name; empty: its first) in its pods: a number or a name. Throws Error.
std::string target_port_of_service(const nlohmann::json& service, const std::string& port);

// "key=value,…", as pods are selected by. Throws Error for a service without a selector.
std::string selector_of_service(const nlohmann::json& service);

bool is_ready(const nlohmann::json& pod);

// Throws ApiError, http::ConnectionError, Error: no such pod, service or port, or no ready pod.
ForwardTarget find_target(Client& client, const ForwardOptions& options);

}  // namespace adaptdl::kube
