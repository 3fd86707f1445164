// The registry of images that a cluster has itself: a service whose node port every node reaches as localhost.
//
// Threading: plain values and functions; find_image_registry as its client.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/client.h"

namespace adaptdl::kube {

struct ImageRegistry {
  std::string name_space, service;
  std::string port;   // of the service, by name or number
  int node_port = 0;  // images are pulled as localhost:NODEPORT/…
};

// The one of a list of services: of those labelled app=docker-registry with a node port named "registry", that named
// adaptdl-registry; any other only if it is the only one. Throws Error if there are several.
std::optional<ImageRegistry> choose_image_registry(const std::vector<nlohmann::json>& services);

// That of a cluster; who may not look at all namespaces is asked for in `name_space`, "adaptdl-registry" and
// "adaptdl". Throws Error that says what can be done if there is none.
ImageRegistry find_image_registry(Client& client, const std::string& name_space);

}  // namespace adaptdl::kube
