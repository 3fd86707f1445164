#include "kube/jobs/image_registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "adaptdl/error.h"
#include "kube/api/json_fields.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

constexpr const char* kService = "adaptdl-registry";
constexpr const char* kPort = "registry";
// The namespaces that usually contain the registry: the one in share/deploy and the operator's.
constexpr std::array kNameSpaces = {"adaptdl-registry", "adaptdl"};
constexpr const char* kWaysOut =
    "install one as described in docs/deploy.md, set ADAPTDL_SUBMIT_REPO to your own repository, or use --image with "
    "an image that has already been pushed";

}  // namespace

std::optional<ImageRegistry> choose_image_registry(const std::vector<json>& services) {
  std::vector<ImageRegistry> found;
  std::vector<std::string> names;
  for (const json& service : services) {
    for (const json& port : array_field(service, {"spec", "ports"})) {
      const int node_port = int_field(port, {"nodePort"}).value_or(0);
      if (node_port == 0 || text_field(port, {"name"}) != kPort) continue;
      found.push_back({text_field(service, {"metadata", "namespace"}), text_field(service, {"metadata", "name"}), kPort,
                       node_port});
      names.push_back(fmt::format("{}/{}", found.back().name_space, found.back().service));
    }
  }
  if (found.empty()) return std::nullopt;
  if (found.size() == 1) return found.front();
  const auto is_ours = [](const ImageRegistry& one) { return one.service == kService; };
  if (std::ranges::count_if(found, is_ours) == 1) return *std::ranges::find_if(found, is_ours);
  throw Error(
      fmt::format("the cluster has several image registries ({}); choose a repository with "
                  "ADAPTDL_SUBMIT_REPO, or use --image with an image that has already been pushed",
                  fmt::join(names, ", ")));
}

ImageRegistry find_image_registry(Client& client, const std::string& name_space) {
  const ListOptions ours{.label_selector = "app=docker-registry", .field_selector = ""};
  std::vector<json> services;
  try {
    services = client.list(path(kServices, ""), ours);
  } catch (const ApiError& error) {
    if (error.code() != 403) throw;
    std::set<std::string> places(kNameSpaces.begin(), kNameSpaces.end());
    places.insert(name_space);
    for (const std::string& there : places) {
      try {
        const auto some = client.list(path(kServices, there), ours);
        services.insert(services.end(), some.begin(), some.end());
      } catch (const ApiError& denied) {
        if (denied.code() != 403) throw;
      }
    }
  }
  if (auto found = choose_image_registry(services)) return *found;
  throw Error(
      fmt::format("the cluster (context '{}') has no image registry (a service labeled app=docker-registry with a node "
                  "port named registry); {}",
                  client.access().context, kWaysOut));
}

}  // namespace adaptdl::kube
