// What a pod has to reach its own cluster: its service account.
//
// Threading: plain functions of files and the environment.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "kube/access.h"

namespace adaptdl::kube {

// Null outside of a pod, and in one that has no service account mounted. The token is named, as it is rotated.
// Throws Error if the account's files cannot be read.
std::optional<Access> in_cluster_access(
    const std::string& name_space = {},
    const std::filesystem::path& account = "/var/run/secrets/kubernetes.io/serviceaccount");

}  // namespace adaptdl::kube
