#include "operator/device_inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "adaptdl/error.h"
#include "kube/json_fields.h"
#include "printable.h"

namespace adaptdl::sched {
namespace {

using kube::array_field;
using kube::field;
using kube::text_field;
using nlohmann::json;

constexpr std::string_view kClassResource = "deviceclass.resource.kubernetes.io/";
// No claim may have more devices.
constexpr int kMaxDevicesPerClaim = 32;

std::string full_name(const json& object) {
  return text_field(object, {"metadata", "namespace"}) + '/' + text_field(object, {"metadata", "name"});
}

// Returns the number of devices that a claim requests, by class. Of alternatives, it is the first that counts.
Resources requests_of_claim(const json& spec) {
  Resources requests;
  for (const json& request : array_field(spec, {"devices", "requests"})) {
    const auto& alternatives = array_field(request, {"firstAvailable"});
    const json& wanted = alternatives.empty() ? field(request, {"exactly"}) : alternatives.front();
    const std::string name = text_field(wanted, {"deviceClassName"});
    if (name.empty() || kube::bool_field(wanted, {"adminAccess"}, false)) continue;
    requests[name] += std::clamp(kube::int_field(wanted, {"count"}).value_or(1), 0, kMaxDevicesPerClaim);
  }
  return requests;
}

// Whether Kubernetes gives the device to pods.
bool is_usable(const json& device) {
  return std::ranges::none_of(array_field(device, {"taints"}), [](const json& taint) {
    const std::string effect = text_field(taint, {"effect"});
    return effect == "NoSchedule" || effect == "NoExecute";
  });
}

// Returns the name of a product in the form of the label nvidia.com/gpu.product.
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

std::string DeviceInventory::put(const kube::Resource& resource, const json& object) {
  if (resource.kind == kube::kDeviceClasses.kind) return put_class(object);
  if (resource.kind == kube::kResourceSlices.kind) {
    slices_[kube::name_of(object)] = object;
    counted_ = false;
  } else if (resource.kind == kube::kResourceClaimTemplates.kind) {
    templates_[full_name(object)] = requests_of_claim(field(object, {"spec", "spec"}));
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
  if (resource.kind == kube::kResourceClaimTemplates.kind) templates_.erase(full_name(object));
  if (resource.kind == kube::kResourceClaims.kind) claims_.erase(full_name(object));
}

void DeviceInventory::clear(const kube::Resource& resource) {
  counted_ = false;
  if (resource.kind == kube::kDeviceClasses.kind) classes_.clear();
  if (resource.kind == kube::kResourceSlices.kind) slices_.clear();
  if (resource.kind == kube::kResourceClaimTemplates.kind) templates_.clear();
  if (resource.kind == kube::kResourceClaims.kind) claims_.clear();
}

std::string DeviceInventory::put_class(const json& object) {
  const std::string name = kube::name_of(object);
  counted_ = false;
  DeviceClass& entry = classes_[name];
  const std::string extended = text_field(object, {"spec", "extendedResourceName"});
  entry = {.resource = extended.empty() ? std::string(kClassResource) + name : extended, .selectors = {}};
  for (const json& selector : array_field(object, {"spec", "selectors"})) {
    try {
      entry.selectors.emplace_back(text_field(selector, {"cel", "expression"}));
    } catch (const Error& error) {
      classes_.erase(name);
      return fmt::format(
          "cannot count the devices of device class {}: its selector is not a conjunction of comparisons: {}", name,
          one_line(error.what()));
    }
  }
  return "";
}

std::string DeviceInventory::resource_of_class(const std::string& name) const {
  const auto found = classes_.find(name);
  return found == classes_.end() ? std::string(kClassResource) + name : found->second.resource;
}

void DeviceInventory::count() const {
  if (counted_) return;
  counted_ = true;
  devices_.clear();
  by_node_.clear();
  products_.clear();
  // While a driver replaces the slices of a pool, those of an older generation are not valid.
  std::map<std::string, double> generations;  // by driver and pool
  const auto pool_of = [](const json& slice) {
    return id_of(text_field(slice, {"spec", "driver"}), text_field(slice, {"spec", "pool", "name"}), "");
  };
  const auto generation_of = [](const json& slice) {
    const json& generation = field(slice, {"spec", "pool", "generation"});
    return generation.is_number() ? generation.get<double>() : 0;
  };
  for (const auto& [name, slice] : slices_) {
    double& newest = generations[pool_of(slice)];
    newest = std::max(newest, generation_of(slice));
  }
  for (const auto& [name, slice] : slices_) {
    const std::string node = text_field(slice, {"spec", "nodeName"}), driver = text_field(slice, {"spec", "driver"});
    if (node.empty() || generation_of(slice) < generations[pool_of(slice)]) continue;
    for (const json& device : array_field(slice, {"spec", "devices"})) {
      Device counted{.node = node, .resources = {}};
      for (const auto& [class_name, each] : classes_) {
        if (each.selects(driver, device) &&
            std::ranges::find(counted.resources, each.resource) == counted.resources.end())
          counted.resources.push_back(each.resource);
      }
      if (counted.resources.empty() || !is_usable(device)) continue;
      for (const std::string& resource : counted.resources) ++by_node_[node][resource];
      const std::string product = product_of(device);
      if (const auto [known, added] = products_.try_emplace(node, product); !added && known->second != product)
        known->second.clear();
      devices_[id_of(driver, text_field(slice, {"spec", "pool", "name"}), text_field(device, {"name"}))] =
          std::move(counted);
    }
  }
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

void DeviceInventory::complete_requests(const json& pod, Resources& requests) const {
  Resources named;
  std::erase_if(requests, [&](const auto& request) {
    const auto& [resource, amount] = request;
    if (!resource.starts_with(kClassResource)) return false;
    named[resource_of_class(resource.substr(kClassResource.size()))] += amount;
    return true;
  });
  for (const auto& [resource, amount] : named) requests[resource] += amount;
  for (const json& claim : array_field(pod, {"spec", "resourceClaims"})) {
    const auto found = templates_.find(text_field(pod, {"metadata", "namespace"}) + '/' +
                                       text_field(claim, {"resourceClaimTemplateName"}));
    if (found == templates_.end()) continue;
    for (const auto& [name, amount] : found->second) requests[resource_of_class(name)] += amount;
  }
}

std::map<std::string, Resources> DeviceInventory::allocated(
    const std::function<bool(const std::string& uid)>& except) const {
  count();
  std::map<std::string, Resources> held;
  for (const auto& [name, claim] : claims_) {
    const auto is_excepted = [&](const json& user) { return except(text_field(user, {"uid"})); };
    if (std::ranges::any_of(array_field(claim, {"status", "reservedFor"}), is_excepted) ||
        std::ranges::any_of(array_field(claim, {"metadata", "ownerReferences"}), is_excepted))
      continue;
    for (const json& result : array_field(claim, {"status", "allocation", "devices", "results"})) {
      if (kube::bool_field(result, {"adminAccess"}, false)) continue;
      const auto device = devices_.find(
          id_of(text_field(result, {"driver"}), text_field(result, {"pool"}), text_field(result, {"device"})));
      if (device == devices_.end()) continue;
      for (const std::string& resource : device->second.resources) ++held[device->second.node][resource];
    }
  }
  return held;
}

}  // namespace adaptdl::sched
