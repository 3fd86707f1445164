#include "command/operator/operator_manifests.h"

#include <fmt/format.h>

#include <memory>

#include "adaptdl/error.h"
#include "command/base/installed_data.h"
#include "command/operator/chart.h"
#include "kube/api/check_text.h"
#include "kube/api/file.h"
#include "kube/api/names.h"
#include "terminal/print.h"

namespace adaptdl::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRelease = "adaptdl";

fs::path data_directory(const char* name) {
  const fs::path directory = installed_data(name);
  if (directory.empty()) throw Error(fmt::format("share/adaptdl/{} not found; reinstall adaptdl", name));
  return directory;
}

// The chart does not contain the namespace, because Helm creates it.
std::string namespace_document(const std::string& name) {
  return fmt::format("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {}\n", json_for_yaml(name));
}

}  // namespace

std::string operator_manifests(const OperatorManifestsOptions& options) {
  if (const std::string why = kube::not_a_label(options.name_space); !why.empty())
    throw UsageError(fmt::format("operator manifests: --namespace {}", why));
  Chart chart = load_chart(data_directory("chart"));
  for (const std::string& setting : options.settings) set_chart_value(chart, setting);
  if (!options.image.empty()) {
    kube::check_text(options.image, "operator manifests: --image");
    chart.values["image"] = options.image;
  }
  const fs::path definition = data_directory("crd") / "adaptdljob.yaml";
  std::string text = kube::read_file(definition, "definition of AdaptDLJob");
  text += "---\n" + namespace_document(options.name_space);
  for (const RenderedTemplate& rendered : render_chart(chart, {kRelease, options.name_space}))
    text += "---\n" + rendered.text;
  return text;
}

void add_operator_manifests(CLI::App& operator_app) {
  auto options = std::make_shared<OperatorManifestsOptions>();
  CLI::App* verb =
      operator_app.add_subcommand("manifests", "Print the Kubernetes manifests for installing the operator");
  verb->add_option("--image", options->image, "Operator's image; the same as --set image=IMAGE")->type_name("IMAGE");
  verb->add_option("-n,--namespace", options->name_space, "Operator's namespace (default: adaptdl)")
      ->type_name("NAMESPACE");
  verb->add_option("--set", options->settings, "Set one of the chart's values; may be given several times")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb->footer(
      "Apply the output with `kubectl apply -f -`. VALUE is YAML; dots separate the keys of nested mappings. The\n"
      "chart's values and their defaults are in share/adaptdl/chart/values.yaml.");
  verb->callback([options] { print_text(operator_manifests(*options)); });
}

}  // namespace adaptdl::cli
