// Reads kubeconfig files in the same way as kubectl:
// https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/api/access.h"

namespace adaptdl::kube {

struct AccessChoice {
  std::string context;     // empty: the current context
  std::string name_space;  // empty: the context's namespace, or "default" if it has none
};

// Returns the files in $KUBECONFIG (colon-separated), or ~/.kube/config if the variable is unset or empty.
std::vector<std::filesystem::path> kubeconfig_files();

// Returns the access that kubectl would use. Files are merged: for each setting, the first file that contains it wins,
// and missing files are skipped. If all files are missing or empty and `choice` names no context, a process in a pod
// uses the pod's service account. Returns null if no cluster is configured, that is, if no file exists and neither
// KUBECONFIG nor a context is specified. Throws an Error that names the file, the line if known, and what to do.
std::optional<Access> find_access(const AccessChoice& choice);

// Like find_access, but reads one text. Relative paths in it are resolved against `directory`. For tests and fuzzing.
Access parse_kubeconfig(std::string_view yaml, const std::filesystem::path& directory, const AccessChoice& choice);

}  // namespace adaptdl::kube
