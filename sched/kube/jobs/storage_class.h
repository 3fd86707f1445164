// Chooses, among a cluster's storage classes, one whose volumes all replicas of a job can share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kube/api/client.h"

namespace adaptdl::kube {

// The annotation that marks the default class.
inline constexpr const char* kDefaultClassAnnotation = "storageclass.kubernetes.io/is-default-class";

// Returns whether the class's provisioner is known to create volumes that several nodes can mount for writing.
bool is_shared_storage(const nlohmann::json& storage_class);
bool is_default_storage(const nlohmann::json& storage_class);

struct StorageChoice {
  std::string storage_class;
  std::string access_mode = "ReadWriteMany";
};

// Returns the class for a job's volume: `wanted` if it is not empty, otherwise a class whose volumes are known to be
// shared, preferably the default class. If there is no such class and the cluster has a single node (`several` is
// false), returns the default or only class. If the class does not exist, throws an Error that lists the classes.
StorageChoice choose_job_storage(const std::vector<nlohmann::json>& classes, const std::string& wanted, bool several);

// Does the same with the classes and nodes of a cluster. If the user is not permitted to list the nodes, several nodes
// are assumed; if the user is not permitted to list the classes, `wanted` is assumed to exist. Throws Error, and the
// same errors as Client.
StorageChoice choose_job_storage(Client& client, const std::string& wanted);

}  // namespace adaptdl::kube
