// The objects of a cluster that AdaptDL's operator consists of, as YAML for `kubectl apply -f -`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace adaptdl::cli {

struct OperatorManifestsOptions {
  std::string image;  // empty: the chart's default
  std::string name_space = "adaptdl";
  std::vector<std::string> settings;  // KEY=VALUE of the chart's values
};

// The CustomResourceDefinition, the namespace and the objects of share/adaptdl/chart, separated by `---`. Throws Error.
std::string operator_manifests(const OperatorManifestsOptions& options);

// Registers the verb `manifests`.
void add_operator_manifests(CLI::App& operator_app);

}  // namespace adaptdl::cli
