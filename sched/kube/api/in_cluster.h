// Gives a pod access to its own cluster through its service account.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "kube/api/access.h"

namespace adaptdl::kube {

// Returns null outside a pod and in a pod without a mounted service account. The token is returned as a file name
// because it is rotated. Throws Error if the account's files cannot be read.
std::optional<Access> in_cluster_access(
    const std::string& name_space = {},
    const std::filesystem::path& account = "/var/run/secrets/kubernetes.io/serviceaccount");

}  // namespace adaptdl::kube
