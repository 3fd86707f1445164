// Reads kubeconfig files as kubectl does:
// https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
//
// Threading: plain functions of files and the environment.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/access.h"

namespace adaptdl::kube {

struct AccessChoice {
  std::string context;     // empty: the current one
  std::string name_space;  // empty: the context's, else "default"
};

// The files of $KUBECONFIG (a list with colons), else ~/.kube/config.
std::vector<std::filesystem::path> kubeconfig_files();

// What kubectl would use: the merged files (the first that has a value wins; one that is missing from a list is passed
// over); without any file but in a pod, its service account. Null: this machine is set up for no cluster, as there is
// no file at all and none was named. Throws Error that names the file, its line where it has one, and the way out.
std::optional<Access> find_access(const AccessChoice& choice);

// The same from one text, whose relative paths are looked up in `directory`. For tests and fuzzing.
Access parse_kubeconfig(std::string_view yaml, const std::filesystem::path& directory, const AccessChoice& choice);

}  // namespace adaptdl::kube
