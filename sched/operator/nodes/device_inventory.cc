#include "operator/nodes/device_inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "kube/api/json_fields.h"
#include "operator/nodes/node_facts.h"

namespace adaptdl::sched {
namespace {

using kube::array_field;
using kube::field;
using kube::text_field;
using nlohmann::json;

constexpr std::string_view kClassResource = "deviceclass.resource.kubernetes.io/";
// Kubernetes does not allow more devices per claim than this.
constexpr int kMaxDevicesPerClaim = 32;

std::string full_name(const json& object) {
  return text_field(object, {"metadata", "namespace"}) + '/' + text_field(object, {"metadata", "name"});
}

// Returns whether Kubernetes assigns the device to pods.
bool is_usable(const json& device) {
  return std::ranges::none_of(array_field(device, {"taints"}), [](const json& taint) {
    const std::string effect = text_field(taint, {"effect"});
    return effect == "NoSchedule" || effect == "NoExecute";
  });
}

// Returns the device's product name in the form of the label nvidia.com/gpu.product.
std::string product_of(const json& device) {
  std::string product = text_field(device, {"attributes", "productName", "string"});
  std::ranges::replace(product, ' ', '-');
  return product;
}

}  // namespace

bool DeviceInventory::DeviceClass::selects(const std::string& driver, const json& device) const {
  return std::ranges::all_of(selectors,
                             [&](const DeviceSelector& selector) { return selector.matches(driver, device); });
}

DeviceInventory::DeviceId DeviceInventory::id_of(const std::string& driver, const std::string& pool,
                                                 const std::string& device) {
  return driver + '\n' + pool + '\n' + device;
}

DeviceInventory::DeviceId DeviceInventory::id_of(const json& slice, const std::string& device) {
  return id_of(text_field(slice, {"spec", "driver"}), text_field(slice, {"spec", "pool", "name"}), device);
}

std::string DeviceInventory::put(const kube::Resource& resource, const json& object) {
  if (resource.kind == kube::kDeviceClasses.kind) return put_class(object);
  if (resource.kind == kube::kResourceSlices.kind) {
    slices_[kube::name_of(object)] = object;
    counted_ = false;
  } else if (resource.kind == kube::kResourceClaimTemplates.kind) {
    ClaimTemplate& entry = templates_[full_name(object)] = {};
    for (const json& request : array_field(object, {"spec", "spec", "devices", "requests"})) {
      // If a request lists alternatives, the first one is counted.
      const auto& alternatives = array_field(request, {"firstAvailable"});
      const json& wanted = alternatives.empty() ? field(request, {"exactly"}) : alternatives.front();
      if (kube::bool_field(wanted, {"adminAccess"}, false)) continue;
      entry.is_counted = entry.is_counted && text_field(wanted, {"allocationMode"}) != "All";
      entry.devices[text_field(wanted, {"deviceClassName"})] +=
          std::clamp(kube::int_field(wanted, {"count"}).value_or(1), 0, kMaxDevicesPerClaim);
    }
  } else if (field(object, {"status", "allocation"}).is_object()) {
    claims_[full_name(object)] = object;
  } else {
    claims_.erase(full_name(object));
  }
  return "";
}

void DeviceInventory::drop(const kube::Resource& resource, const json& object) {
  counted_ = false;
  if (resource.kind == kube::kDeviceClasses.kind) classes_.erase(kube::name_of(object));
  if (resource.kind == kube::kResourceSlices.kind) slices_.erase(kube::name_of(object));
  if (resource.kind == kube::kResourceClaims.kind) claims_.erase(full_name(object));
  if (resource.kind == kube::kResourceClaimTemplates.kind) {
    if (const auto found = templates_.find(full_name(object)); found != templates_.end()) found->second.exists = false;
  }
}

std::vector<std::string> DeviceInventory::replace(const kube::Resource& resource, const std::vector<json>& objects) {
  counted_ = false;
  if (resource.kind == kube::kDeviceClasses.kind) classes_.clear();
  if (resource.kind == kube::kResourceSlices.kind) slices_.clear();
  if (resource.kind == kube::kResourceClaims.kind) claims_.clear();
  if (resource.kind == kube::kResourceClaimTemplates.kind) {
    for (auto& [name, each] : templates_) each.exists = false;
  }
  std::vector<std::string> faults;
  for (const json& object : objects) {
    if (std::string fault = put(resource, object); !fault.empty()) faults.push_back(std::move(fault));
  }
  return faults;
}

std::string DeviceInventory::put_class(const json& object) {
  const std::string name = kube::name_of(object);
  counted_ = false;
  DeviceClass& entry = classes_[name];
  entry = {.extended = text_field(object, {"spec", "extendedResourceName"}),
           .created = kube::time_field(object, {"metadata", "creationTimestamp"}),
           .selectors = {}};
  for (const json& selector : array_field(object, {"spec", "selectors"})) {
    try {
      entry.selectors.emplace_back(text_field(selector, {"cel", "expression"}));
    } catch (const Error& error) {
      classes_.erase(name);
      return fmt::format(
          "cannot count the devices of device class '{}': its selector is not a conjunction of "
          "comparisons: {}; use another class for jobs",
          name, one_line(error.what()));
    }
  }
  return "";
}

// Returns the names of the resources under which a class's devices are counted.
std::vector<std::string> DeviceInventory::names_of_class(const std::string& name) const {
  count();
  const auto found = classes_.find(name);
  const std::string extended = found == classes_.end() ? "" : found->second.extended;
  if (const auto first = class_by_extended_.find(extended); first != class_by_extended_.end() && first->second == name)
    return {extended, name + " (DeviceClass)"};
  return {std::string(kClassResource) + name};
}

void DeviceInventory::count() const {
  if (counted_) return;
  counted_ = true;  // count_device() calls names_of_class(), which requires only class_by_extended_
  choose_extended_classes();
  devices_.clear();
  by_node_.clear();
  products_.clear();
  for (const json* slice : current_slices()) {
    for (const json& device : array_field(*slice, {"spec", "devices"})) count_device(*slice, device);
  }
}

// If several classes have the same extended resource, Kubernetes uses the one that was created last or, if they were
// created at the same time, the first by name.
void DeviceInventory::choose_extended_classes() const {
  class_by_extended_.clear();
  for (const auto& [name, each] : classes_) {
    if (each.extended.empty()) continue;
    const auto [chosen, added] = class_by_extended_.try_emplace(each.extended, name);
    if (!added && each.created > classes_.at(chosen->second).created) chosen->second = name;
  }
}

// Returns the slices that belong to a single node. While a driver replaces the slices of a pool, those of an older
// generation are invalid and are omitted.
std::vector<const json*> DeviceInventory::current_slices() const {
  const auto generation_of = [](const json& slice) {
    const json& generation = field(slice, {"spec", "pool", "generation"});
    return generation.is_number() ? generation.get<double>() : 0;
  };
  std::map<DeviceId, double> newest;  // by driver and pool
  for (const auto& [name, slice] : slices_) {
    double& generation = newest[id_of(slice, "")];
    generation = std::max(generation, generation_of(slice));
  }
  std::vector<const json*> current;
  for (const auto& [name, slice] : slices_) {
    if (text_field(slice, {"spec", "nodeName"}).empty() || generation_of(slice) < newest[id_of(slice, "")]) continue;
    current.push_back(&slice);
  }
  return current;
}

void DeviceInventory::count_device(const json& slice, const json& device) const {
  if (!is_usable(device)) return;
  Device counted{.node = text_field(slice, {"spec", "nodeName"}), .names = {}};
  for (const auto& [name, each] : classes_) {
    if (!each.selects(text_field(slice, {"spec", "driver"}), device)) continue;
    for (std::string& resource : names_of_class(name)) counted.names.insert(std::move(resource));
  }
  if (counted.names.empty()) return;
  for (const std::string& resource : counted.names) ++by_node_[counted.node][resource];
  const std::string product = product_of(device);
  if (!product.empty() && std::ranges::any_of(counted.names, is_gpu)) {
    const auto [known, added] = products_.try_emplace(counted.node, product);
    if (!added && known->second != product) known->second.clear();
  }
  devices_[id_of(slice, text_field(device, {"name"}))] = std::move(counted);
}

const std::map<std::string, Resources>& DeviceInventory::by_node() const {
  count();
  return by_node_;
}

std::string DeviceInventory::product(const std::string& node) const {
  count();
  const auto found = products_.find(node);
  return found == products_.end() ? std::string() : found->second;
}

void DeviceInventory::complete_requests(const json& pod, bool is_new, Resources& requests) const {
  Resources classes;
  std::erase_if(requests, [&](const auto& request) {
    const auto& [resource, amount] = request;
    if (!resource.starts_with(kClassResource)) return false;
    classes[resource.substr(kClassResource.size())] += amount;
    return true;
  });
  for (const json& claim : array_field(pod, {"spec", "resourceClaims"})) {
    const std::string name = text_field(claim, {"resourceClaimTemplateName"});
    if (name.empty()) continue;
    const std::string full = text_field(pod, {"metadata", "namespace"}) + '/' + name;
    const auto found = templates_.find(full);
    if (found != templates_.end()) classes += found->second.devices;
    const bool exists = found != templates_.end() && found->second.exists;
    if (!is_new || (exists && found->second.is_counted)) continue;
    const char* const why = exists ? "the number of its devices is not fixed" : "not found";
    requests[fmt::format("ResourceClaimTemplate '{}' ({})", full, why)] = 1;
  }
  for (const auto& [name, amount] : classes) {
    for (const std::string& resource : names_of_class(name)) requests[resource] += amount;
  }
}

void DeviceInventory::complete_node(Resources& resources) const {
  count();
  for (const auto& [extended, name] : class_by_extended_) {
    std::int64_t amount = 0;
    for (const std::string& resource : {extended, std::string(kClassResource) + name}) {
      if (const auto found = resources.find(resource); found != resources.end()) amount = found->second;
    }
    if (amount == 0) continue;
    resources.erase(std::string(kClassResource) + name);
    for (const std::string& resource : names_of_class(name)) resources[resource] = amount;
  }
}

// Returns the names of the resources under which a request in a claim is counted.
std::vector<std::string> DeviceInventory::requested_names(const json& claim, const std::string& request) const {
  // If an alternative was allocated, the name consists of the request and the alternative, for example gpu/large.
  const std::size_t slash = request.find('/');
  for (const json& each : array_field(claim, {"spec", "devices", "requests"})) {
    if (text_field(each, {"name"}) != request.substr(0, slash)) continue;
    if (slash == std::string::npos) return names_of_class(text_field(each, {"exactly", "deviceClassName"}));
    for (const json& alternative : array_field(each, {"firstAvailable"})) {
      if (text_field(alternative, {"name"}) == request.substr(slash + 1))
        return names_of_class(text_field(alternative, {"deviceClassName"}));
    }
  }
  return {};
}

std::map<std::string, Resources> DeviceInventory::allocated(
    const std::function<Owner(const std::string& uid)>& owner) const {
  count();
  std::map<std::string, Resources> held;
  for (const auto& [name, claim] : claims_) {
    Owner of = Owner::kOtherPod;
    for (const json& reference : array_field(claim, {"metadata", "ownerReferences"})) {
      if (text_field(reference, {"kind"}) == "Pod") of = owner(text_field(reference, {"uid"}));
    }
    if (of == Owner::kUnknownPod) continue;
    for (const json& result : array_field(claim, {"status", "allocation", "devices", "results"})) {
      if (kube::bool_field(result, {"adminAccess"}, false)) continue;
      const auto device = devices_.find(
          id_of(text_field(result, {"driver"}), text_field(result, {"pool"}), text_field(result, {"device"})));
      if (device == devices_.end()) continue;
      std::set<std::string> names = device->second.names;
      if (of == Owner::kReplica) {
        for (const std::string& own : requested_names(claim, text_field(result, {"request"}))) names.erase(own);
      }
      for (const std::string& resource : names) ++held[device->second.node][resource];
    }
  }
  return held;
}

}  // namespace adaptdl::sched
