#include "operator/nodes/node_facts.h"

#include <algorithm>
#include <charconv>

#include "adaptdl/error.h"
#include "kube/api/json_fields.h"
#include "kube/api/quantity.h"

namespace adaptdl::sched {
namespace {

using kube::array_field;
using kube::field;
using kube::text_field;
using nlohmann::json;

constexpr const char* kCordon = "node.kubernetes.io/unschedulable";
// This is more than any machine has, and sums of such amounts do not overflow.
constexpr std::int64_t kMaxAmount = std::int64_t{1} << 53;

std::int64_t amount(const std::string& type, const json& value, bool round_up) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  try {
    const kube::Quantity quantity = kube::Quantity::parse(text);
    const std::int64_t up = type == "cpu" ? quantity.ceil_milli() : quantity.ceil();
    if (round_up || type == "cpu") return std::clamp<std::int64_t>(up, 0, kMaxAmount);
    return static_cast<std::int64_t>(std::clamp(quantity.value(), 0.0, static_cast<double>(kMaxAmount)));
  } catch (const Error&) {
    return 0;
  }
}

Resources container_requests(const json& container) {
  Resources requests;
  for (const char* part : {"limits", "requests"}) {  // requests override limits
    const json& values = field(container, {"resources", part});
    if (!values.is_object()) continue;
    for (const auto& [type, value] : values.items()) requests[type] = amount(type, value, true);
  }
  return requests;
}

std::string label(const json& labels, const std::string& key) {
  const auto found = labels.find(key);
  return found != labels.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_number(const std::string& text, long& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

bool matches(const json& requirement, const json& labels) {
  const std::string key = text_field(requirement, {"key"}), op = text_field(requirement, {"operator"});
  const auto& values = array_field(requirement, {"values"});
  const bool there = labels.contains(key);
  const std::string value = label(labels, key);
  const bool listed = there && std::ranges::find(values, json(value)) != values.end();
  if (op == "In") return listed;
  if (op == "NotIn") return !listed;
  if (op == "Exists") return there;
  if (op == "DoesNotExist") return !there;
  long mine = 0, bound = 0;
  if (values.empty() || !values[0].is_string()) return false;
  if (!is_number(value, mine) || !is_number(values[0].get<std::string>(), bound)) return false;
  return op == "Gt" ? mine > bound : op == "Lt" && mine < bound;
}

bool matches_term(const json& term, const NodeFacts& node) {
  const auto& by_label = array_field(term, {"matchExpressions"});
  const auto& by_field = array_field(term, {"matchFields"});
  if (by_label.empty() && by_field.empty()) return false;
  const json fields{{"metadata.name", node.name}};
  return std::ranges::all_of(by_label, [&](const json& each) { return matches(each, node.labels); }) &&
         std::ranges::all_of(by_field, [&](const json& each) { return matches(each, fields); });
}

bool is_selected(const json& pod, const NodeFacts& node) {
  const json& selector = field(pod, {"spec", "nodeSelector"});
  if (selector.is_object()) {
    for (const auto& [key, value] : selector.items()) {
      if (!node.labels.contains(key) || node.labels[key] != value) return false;
    }
  }
  const json& affinity =
      field(pod, {"spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"});
  if (!affinity.is_object()) return true;
  return std::ranges::any_of(array_field(affinity, {"nodeSelectorTerms"}),
                             [&](const json& term) { return matches_term(term, node); });
}

bool tolerates(const json& toleration, const json& taint) {
  const std::string effect = text_field(toleration, {"effect"}), key = text_field(toleration, {"key"});
  if (!effect.empty() && effect != text_field(taint, {"effect"})) return false;
  const bool exists = text_field(toleration, {"operator"}) == "Exists";
  if (key.empty()) return exists;
  if (key != text_field(taint, {"key"})) return false;
  return exists || text_field(toleration, {"value"}) == text_field(taint, {"value"});
}

bool is_cordon(const json& taint) { return text_field(taint, {"key"}) == kCordon; }

bool lists(const std::vector<std::string>& keys, const std::string& key) {
  return std::ranges::any_of(keys, [&](const std::string& each) {
    return each.ends_with('/') ? key.starts_with(each) : !key.empty() && key == each;
  });
}

std::string sign_of_leaving(const json& node, const DrainSigns& signs) {
  for (const json& taint : array_field(node, {"spec", "taints"})) {
    if (const std::string key = text_field(taint, {"key"}); lists(signs.taints, key)) return "taint " + key;
  }
  for (const json& condition : array_field(node, {"status", "conditions"})) {
    if (text_field(condition, {"status"}) != "True") continue;
    for (const char* name : {"type", "reason"}) {
      const std::string text = text_field(condition, {name});
      if (lists(signs.conditions, text)) return "condition " + text;
    }
  }
  return text_field(node, {"metadata", "deletionTimestamp"}).empty() ? "" : "deletion requested";
}

}  // namespace

NodeFacts parse_node(const json& node, const DrainSigns& signs) {
  NodeFacts facts{.name = kube::name_of(node)};
  facts.labels = field(node, {"metadata", "labels"});
  if (!facts.labels.is_object()) facts.labels = json::object();
  facts.gpu_type = label(facts.labels, "nvidia.com/gpu.product");
  if (const auto created = kube::time_field(node, {"metadata", "creationTimestamp"}))
    facts.created = std::chrono::duration<double>(created->time_since_epoch()).count();
  const json& allocatable = field(node, {"status", "allocatable"});
  if (allocatable.is_object()) {
    for (const auto& [type, value] : allocatable.items()) facts.allocatable[type] = amount(type, value, false);
  }
  for (const json& condition : array_field(node, {"status", "conditions"})) {
    if (text_field(condition, {"type"}) == "Ready") facts.ready = text_field(condition, {"status"}) == "True";
  }
  facts.taints = array_field(node, {"spec", "taints"});
  const bool cordoned = kube::bool_field(node, {"spec", "unschedulable"}, false);
  if (cordoned && std::ranges::none_of(facts.taints, is_cordon))
    facts.taints.push_back({{"key", kCordon}, {"effect", "NoSchedule"}});
  facts.leaving = sign_of_leaving(node, signs);
  return facts;
}

Resources pod_requests(const json& pod) {
  Resources total;
  for (const json& container : array_field(pod, {"spec", "containers"})) total += container_requests(container);
  // The requests of the init containers that keep running (`sidecars`), and the maximum requests while another init
  // container is running (`peak`).
  Resources sidecars, peak;
  for (const json& container : array_field(pod, {"spec", "initContainers"})) {
    Resources now = sidecars;
    now += container_requests(container);
    if (text_field(container, {"restartPolicy"}) == "Always") {
      sidecars = now;
      continue;
    }
    for (const auto& [type, value] : now) peak[type] = std::max(peak[type], value);
  }
  total += sidecars;
  for (const auto& [type, value] : peak) total[type] = std::max(total[type], value);
  const json& overhead = field(pod, {"spec", "overhead"});
  if (overhead.is_object()) {
    for (const auto& [type, value] : overhead.items()) total[type] += amount(type, value, true);
  }
  total["pods"] = 1;
  return total;
}

namespace {

// Returns whether the pod tolerates all taints of the node. `state`: whether to check the taints by which Kubernetes
// reports the state of a node (node.kubernetes.io/*).
bool tolerates_all(const json& pod, const NodeFacts& node, bool state) {
  const auto& tolerations = array_field(pod, {"spec", "tolerations"});
  return std::ranges::all_of(node.taints, [&](const json& taint) {
    const std::string effect = text_field(taint, {"effect"});
    if (effect != "NoSchedule" && effect != "NoExecute") return true;
    if (!state && text_field(taint, {"key"}).starts_with("node.kubernetes.io/")) return true;
    return std::ranges::any_of(tolerations, [&](const json& each) { return tolerates(each, taint); });
  });
}

}  // namespace

bool accepts_pods(const NodeFacts& node) {
  return node.ready && node.leaving.empty() && std::ranges::none_of(node.taints, is_cordon);
}

bool could_run(const json& pod, const NodeFacts& node) {
  // The node that replaces a leaving node does not have the taints that announce the removal.
  return is_selected(pod, node) && (!node.leaving.empty() || tolerates_all(pod, node, false));
}

bool may_run(const json& pod, const NodeFacts& node) {
  return node.ready && node.leaving.empty() && is_selected(pod, node) && tolerates_all(pod, node, true);
}

bool is_gpu(const std::string& resource) {
  return resource.ends_with("/gpu") || resource.starts_with("deviceclass.resource.kubernetes.io/gpu.");
}

double in_kubernetes_units(const std::string& resource, std::int64_t amount) {
  return static_cast<double>(amount) / (resource == "cpu" ? 1000 : 1);
}

Resources& operator+=(Resources& sum, const Resources& more) {
  for (const auto& [type, value] : more) sum[type] += value;
  return sum;
}

void subtract(Resources& sum, const Resources& less, std::int64_t times) {
  for (const auto& [type, value] : less) {
    const auto found = sum.find(type);
    if (found == sum.end()) continue;
    __extension__ using Wide = __int128;
    found->second = static_cast<std::int64_t>(std::max<Wide>(found->second - Wide{times} * value, 0));
  }
}

}  // namespace adaptdl::sched
