#include "kube/api/in_cluster.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/text_parts.h"
#include "kube/api/file.h"

namespace adaptdl::kube {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::optional<Access> in_cluster_access(const std::string& name_space, const std::filesystem::path& account) {
  const std::string host = variable("KUBERNETES_SERVICE_HOST"), port = variable("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty() || !std::filesystem::exists(account / "token")) return {};
  Access access;
  access.context = "in-cluster";
  access.user = "the pod's service account";
  const bool is_ipv6 = host.find(':') != std::string::npos;
  access.server = is_ipv6 ? fmt::format("https://[{}]:{}", host, port) : fmt::format("https://{}:{}", host, port);
  access.token.file = account / "token";
  if (std::filesystem::exists(account / "ca.crt")) access.certificate_authority.file = account / "ca.crt";
  const std::optional<std::string> own = read_if_there(account / "namespace", "the pod's namespace");
  if (own && !trimmed(*own).empty()) access.name_space = trimmed(*own);
  if (!name_space.empty()) access.name_space = name_space;
  return access;
}

}  // namespace adaptdl::kube
