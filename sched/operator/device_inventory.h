// The devices that drivers publish by dynamic resource allocation (resource.k8s.io/v1), counted as resources of nodes.
//
// A device counts once for each DeviceClass that selects it, as the class's spec.extendedResourceName, or, if it has
// none, as deviceclass.resource.kubernetes.io/CLASS. Pods request devices by these names, as those of a device plugin,
// or by claims that name the class. Which device a pod gets is decided by the Kubernetes scheduler.
//
// Only devices of a single node are counted. Requests by a claim that pods share do not count; once it is allocated,
// its devices do.
//
// Threading: not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kube/resource.h"
#include "operator/device_selector.h"
#include "policy/policy.h"

namespace adaptdl::sched {

// The kinds of objects that an inventory reads.
inline constexpr const kube::Resource* kDeviceResources[] = {&kube::kDeviceClasses, &kube::kResourceClaims,
                                                             &kube::kResourceClaimTemplates, &kube::kResourceSlices};

class DeviceInventory {
 public:
  // Adds or replaces an object of one of kDeviceResources. Returns why the devices of a DeviceClass cannot be counted;
  // empty if they can, and for all other objects.
  std::string put(const kube::Resource& resource, const nlohmann::json& object);
  void drop(const kube::Resource& resource, const nlohmann::json& object);
  // Removes all objects of the resource.
  void clear(const kube::Resource& resource);

  // Returns the usable devices of each node.
  const std::map<std::string, Resources>& by_node() const;
  // Returns the product that the devices of a node are; empty if they differ or do not say.
  std::string product(const std::string& node) const;

  // Adds to the requests of a pod what it requests by its claims, and renames requests of a class that has the name of
  // an extended resource.
  void complete_requests(const nlohmann::json& pod, Resources& requests) const;

  // Returns the devices of each node that are allocated to claims, except for those of pods with such a uid.
  std::map<std::string, Resources> allocated(const std::function<bool(const std::string& uid)>& except) const;

 private:
  struct DeviceClass {
    std::string resource;  // as which its devices count
    std::vector<DeviceSelector> selectors;
    bool selects(const std::string& driver, const nlohmann::json& device) const;
  };
  struct Device {
    std::string node;
    std::vector<std::string> resources;  // as which it counts
  };
  using DeviceId = std::string;  // driver, pool and device

  static DeviceId id_of(const std::string& driver, const std::string& pool, const std::string& device);
  std::string put_class(const nlohmann::json& object);
  std::string resource_of_class(const std::string& name) const;
  void count() const;

  std::map<std::string, nlohmann::json> slices_;         // by name
  std::map<std::string, DeviceClass> classes_;           // by name
  std::map<std::string, Resources> templates_;           // by namespace/name: devices by class
  std::map<std::string, nlohmann::json> claims_;         // by namespace/name: allocated ones
  mutable bool counted_ = true;                          // whether the members below are up to date
  mutable std::map<DeviceId, Device> devices_;           // usable ones of nodes
  mutable std::map<std::string, Resources> by_node_;     // by node
  mutable std::map<std::string, std::string> products_;  // by node
};

}  // namespace adaptdl::sched
