#include "kube/stream/forward_target.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "kube/api/json_fields.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

std::optional<std::uint16_t> number(const std::string& port) {
  std::uint16_t value = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), value);
  if (error != std::errc() || end != port.data() + port.size() || value == 0) return std::nullopt;
  return value;
}

std::optional<std::uint16_t> number(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  const auto wide = value.get<std::int64_t>();
  return wide > 0 && wide <= 65535 ? std::optional(static_cast<std::uint16_t>(wide)) : std::nullopt;
}

}  // namespace

std::uint16_t port_of_pod(const json& pod, const std::string& port) {
  if (const auto given = number(port)) return *given;
  for (const json& container : field(pod, {"spec", "containers"})) {
    for (const json& each : field(container, {"ports"})) {
      const auto value = number(field(each, {"containerPort"}));
      if (value && (port.empty() || text_field(each, {"name"}) == port)) return *value;
    }
  }
  if (port.empty()) throw Error(fmt::format("pod '{}' declares no port; specify one", name_of(pod)));
  throw Error(fmt::format("pod '{}' has no port named '{}'; specify its number", name_of(pod), port));
}

std::string target_port_of_service(const json& service, const std::string& port) {
  const auto given = number(port);
  for (const json& each : field(service, {"spec", "ports"})) {
    const auto value = number(field(each, {"port"}));
    if (!port.empty() && text_field(each, {"name"}) != port && (!given || value != given)) continue;
    const json& target = field(each, {"targetPort"});
    if (const auto wanted = number(target)) return std::to_string(*wanted);
    if (target.is_string() && target != "") return target.get<std::string>();
    if (value) return std::to_string(*value);
  }
  throw Error(port.empty() ? fmt::format("service '{}' has no port", name_of(service))
                           : fmt::format("service '{}' has no port '{}'", name_of(service), port));
}

std::string selector_of_service(const json& service) {
  std::string selector;
  if (const json& labels = field(service, {"spec", "selector"}); labels.is_object()) {
    for (const auto& [key, value] : labels.items())
      selector +=
          fmt::format("{}{}={}", selector.empty() ? "" : ",", key, value.is_string() ? value.get<std::string>() : "");
  }
  if (selector.empty())
    throw Error(fmt::format("service '{}' selects no pods; specify a pod instead", name_of(service)));
  return selector;
}

bool is_ready(const json& pod) {
  if (!field(pod, {"metadata", "deletionTimestamp"}).is_null()) return false;
  for (const json& condition : field(pod, {"status", "conditions"}))
    if (text_field(condition, {"type"}) == "Ready") return text_field(condition, {"status"}) == "True";
  return false;
}

ForwardTarget find_target(Client& client, const ForwardOptions& options) {
  if (options.service.empty()) {
    const json pod = client.get(path(kPods, options.name_space, options.pod));
    return {options.pod, port_of_pod(pod, options.port)};
  }
  const json service = client.get(path(kServices, options.name_space, options.service));
  const std::string port = target_port_of_service(service, options.port);
  for (const json& pod : client.list(path(kPods, options.name_space), {selector_of_service(service), ""}))
    if (is_ready(pod)) return {name_of(pod), port_of_pod(pod, port)};
  throw Error(fmt::format("service '{}' has no ready pod", options.service));
}

}  // namespace adaptdl::kube
