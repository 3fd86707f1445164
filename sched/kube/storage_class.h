// Storage classes: which of those of a cluster makes volumes that all replicas of a job can share.
//
// Threading: pure functions; choose_job_storage as its client.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kube/client.h"

namespace adaptdl::kube {

// What marks the default class, in its annotations.
inline constexpr const char* kDefaultClassAnnotation = "storageclass.kubernetes.io/is-default-class";

// Whether its provisioner is known to make volumes that several nodes can mount for writing.
bool is_shared_storage(const nlohmann::json& storage_class);
bool is_default_storage(const nlohmann::json& storage_class);

struct StorageChoice {
  std::string storage_class;
  std::string access_mode = "ReadWriteMany";
};

// The class of the volume of a job: the one asked for; else one that nodes are known to share, the default before
// others; else, where there is a single node (`several` is false), the default or only one. Throws Error that lists
// what there is.
StorageChoice choose_job_storage(const std::vector<nlohmann::json>& classes, const std::string& wanted, bool several);

// The same of a cluster. What the user may not look at is taken as it would be in a cluster of several nodes, and the
// class asked for as if it were there. Throws as Client does.
StorageChoice choose_job_storage(Client& client, const std::string& wanted);

}  // namespace adaptdl::kube
