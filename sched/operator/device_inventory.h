// The devices that drivers publish by dynamic resource allocation (resource.k8s.io/v1), counted as resources of nodes.
//
// A device counts once for each DeviceClass that selects it, as deviceclass.resource.kubernetes.io/CLASS. Devices of a
// class with an extended resource (spec.extendedResourceName) count as that, which a device plugin may provide on other
// nodes, and as "CLASS (DeviceClass)", which only devices are. Pods request them by these names, or by claims for the
// class. Which device a pod gets is decided by the Kubernetes scheduler.
//
// Only devices of a single node are counted. A claim that pods share does not count as a request; once it is allocated,
// its devices are held.
//
// Threading: not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kube/resource.h"
#include "kube/timestamp.h"
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
  // Replaces all objects of the resource. Returns why devices cannot be counted.
  std::vector<std::string> replace(const kube::Resource& resource, const std::vector<nlohmann::json>& objects);

  // Returns the usable devices of each node.
  const std::map<std::string, Resources>& by_node() const;
  // Returns the product that the GPUs of a node are; empty if they differ or are not known.
  std::string product(const std::string& node) const;

  // Completes the requests of a replica's pod by its claims, and by the other names of what it requests. What makes a
  // new pod wait, such as a ResourceClaimTemplate that does not exist, becomes a request that no node satisfies; pods
  // that exist do not have it (`is_new`).
  void complete_requests(const nlohmann::json& pod, bool is_new, Resources& requests) const;
  // Completes the resources of a node that does not exist yet by the other names of its devices.
  void complete_node(Resources& resources) const;

  enum class Owner { kReplica, kOtherPod, kUnknownPod };
  // Returns the devices of each node that are allocated to claims: for a claim that a replica owns, only under other
  // names than those it requests; for a claim of an unknown pod, which has ended, not at all. `owner` is called with
  // the uid of a pod.
  std::map<std::string, Resources> allocated(const std::function<Owner(const std::string& uid)>& owner) const;

 private:
  struct DeviceClass {
    std::string extended;  // the extended resource in its spec; may be empty
    std::optional<kube::Time> created;
    std::vector<DeviceSelector> selectors;
    bool selects(const std::string& driver, const nlohmann::json& device) const;
  };
  struct ClaimTemplate {
    Resources devices;       // by class
    bool is_counted = true;  // or its number of devices depends on the node
    bool exists = true;      // pods that were created with it keep their devices when it is deleted
  };
  struct Device {
    std::string node;
    std::set<std::string> names;  // of resources
  };
  using DeviceId = std::string;  // driver, pool and device

  static DeviceId id_of(const std::string& driver, const std::string& pool, const std::string& device);
  std::string put_class(const nlohmann::json& object);
  std::vector<std::string> names_of_class(const std::string& name) const;
  std::vector<std::string> requested_names(const nlohmann::json& claim, const std::string& request) const;
  void count() const;

  std::map<std::string, nlohmann::json> slices_;    // by name
  std::map<std::string, DeviceClass> classes_;      // by name
  std::map<std::string, ClaimTemplate> templates_;  // by namespace/name
  std::map<std::string, nlohmann::json> claims_;    // by namespace/name: allocated ones
  mutable bool counted_ = true;                     // whether the members below are up to date
  mutable std::map<std::string, std::string> class_by_extended_;
  mutable std::map<DeviceId, Device> devices_;           // usable ones of nodes
  mutable std::map<std::string, Resources> by_node_;     // by node
  mutable std::map<std::string, std::string> products_;  // by node
};

}  // namespace adaptdl::sched
