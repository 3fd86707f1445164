// Finds the image registry inside a cluster: a service with a node port, which every node can reach at localhost.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/api/client.h"

namespace adaptdl::kube {

struct ImageRegistry {
  std::string name_space, service;
  std::string port;   // the service's port, by name or number
  int node_port = 0;  // images are pulled as localhost:NODEPORT/…
};

// Chooses among services labeled app=docker-registry. Only services with a node port named "registry" are considered.
// If there are several such services, the one named adaptdl-registry is chosen; throws Error unless exactly one of them
// has that name. Returns null if there is no such service.
std::optional<ImageRegistry> choose_image_registry(const std::vector<nlohmann::json>& services);

// Finds a cluster's registry. If the user is not permitted to list services in all namespaces, searches only
// `name_space`, "adaptdl-registry" and "adaptdl". If there is no registry, throws an Error that suggests what to do.
ImageRegistry find_image_registry(Client& client, const std::string& name_space);

}  // namespace adaptdl::kube
