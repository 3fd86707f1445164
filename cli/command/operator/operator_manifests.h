// The verb `operator manifests`: prints the operator's Kubernetes objects as YAML for `kubectl apply -f -`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace adaptdl::cli {

struct OperatorManifestsOptions {
  std::string image;  // if empty, the chart's default
  std::string name_space = "adaptdl";
  std::vector<std::string> settings;  // assignments KEY=VALUE to the chart's values
};

// Returns the CustomResourceDefinition, the namespace and the objects of share/adaptdl/chart, separated by `---`.
// Throws UsageError on invalid options, and Error if the chart cannot be read or rendered.
std::string operator_manifests(const OperatorManifestsOptions& options);

// Registers the verb `manifests`.
void add_operator_manifests(CLI::App& operator_app);

}  // namespace adaptdl::cli
