// Reads kubeconfig files as kubectl does:
// https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/access.h"

namespace adaptdl::kube {

struct AccessChoice {
  std::string context;     // empty: the current context
  std::string name_space;  // empty: the context's, else "default"
};

// Returns the files of $KUBECONFIG (colon-separated), else ~/.kube/config.
std::vector<std::filesystem::path> kubeconfig_files();

// Returns the access that kubectl would use. Files are merged: the first that has a value wins, and missing files are
// skipped. If the files are missing or empty, and no context is named, a pod uses its service account. Returns null if
// no cluster is configured: there is no file, and neither a file nor a context was named. Throws an Error that names
// the file, the line if known, and what to do.
std::optional<Access> find_access(const AccessChoice& choice);

// Does the same for one text, whose relative paths refer to `directory`. For tests and fuzzing.
Access parse_kubeconfig(std::string_view yaml, const std::filesystem::path& directory, const AccessChoice& choice);

}  // namespace adaptdl::kube
