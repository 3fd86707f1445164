// Counts the devices that drivers publish through dynamic resource allocation (resource.k8s.io/v1) as node resources.
//
// A device is counted once for each DeviceClass that selects it, as deviceclass.resource.kubernetes.io/CLASS. If the
// class has an extended resource (spec.extendedResourceName), its devices are instead counted under two names: as that
// resource, which a device plugin may provide on other nodes, and as "CLASS (DeviceClass)", which excludes the devices
// of plugins. Pods request devices by a resource name or by claims for a class. The Kubernetes scheduler decides which
// device a pod receives.
//
// Only devices that belong to a single node are counted. A claim that several pods share is not counted as a request;
// its devices are treated as held once the claim is allocated.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kube/api/resource.h"
#include "kube/api/timestamp.h"
#include "operator/nodes/device_selector.h"
#include "policy/base/policy.h"

namespace adaptdl::sched {

// The kinds of objects that an inventory reads.
inline constexpr const kube::Resource* kDeviceResources[] = {&kube::kDeviceClasses, &kube::kResourceClaims,
                                                             &kube::kResourceClaimTemplates, &kube::kResourceSlices};

class DeviceInventory {
 public:
  // Adds or replaces an object of one of kDeviceResources. If the object is a DeviceClass whose devices cannot be
  // counted, returns the reason, otherwise an empty string.
  std::string put(const kube::Resource& resource, const nlohmann::json& object);
  void drop(const kube::Resource& resource, const nlohmann::json& object);
  // Replaces all objects of the resource. Returns the reasons why devices cannot be counted.
  std::vector<std::string> replace(const kube::Resource& resource, const std::vector<nlohmann::json>& objects);

  // Returns the usable devices of each node.
  const std::map<std::string, Resources>& by_node() const;
  // Returns the product name of a node's GPUs; empty if it is not known or the GPUs differ.
  std::string product(const std::string& node) const;

  // Adds to `requests` the devices that a replica's pod requests by claims, and replaces the names of classes with the
  // names of the resources under which their devices are counted. If `is_new`, a ResourceClaimTemplate that does not
  // exist, or whose number of devices depends on the node, becomes a request that no node satisfies, because a new pod
  // would wait for it.
  void complete_requests(const nlohmann::json& pod, bool is_new, Resources& requests) const;
  // Adds the other names of a node's devices to the node's resources, for a node that does not exist yet.
  void complete_node(Resources& resources) const;

  enum class Owner { kReplica, kOtherPod, kUnknownPod };
  // Returns, for each node, the devices that are allocated to claims. If a replica owns a claim, the claim's devices
  // are counted only under names that the claim does not request. Claims of unknown pods, which have ended, are not
  // counted. `owner` is called with a pod's uid.
  std::map<std::string, Resources> allocated(const std::function<Owner(const std::string& uid)>& owner) const;

 private:
  struct DeviceClass {
    std::string extended;  // the extended resource in its spec; may be empty
    std::optional<kube::Time> created;
    std::vector<DeviceSelector> selectors;
    bool selects(const std::string& driver, const nlohmann::json& device) const;
  };
  struct ClaimTemplate {
    Resources devices;       // number of devices by class
    bool is_counted = true;  // false if the number of devices depends on the node
    bool exists = true;      // false once deleted; existing pods keep their devices
  };
  struct Device {
    std::string node;
    std::set<std::string> names;  // names of the resources under which the device is counted
  };
  using DeviceId = std::string;  // driver, pool and device

  static DeviceId id_of(const std::string& driver, const std::string& pool, const std::string& device);
  static DeviceId id_of(const nlohmann::json& slice, const std::string& device);
  std::string put_class(const nlohmann::json& object);
  std::vector<std::string> names_of_class(const std::string& name) const;
  std::vector<std::string> requested_names(const nlohmann::json& claim, const std::string& request) const;
  void count() const;
  void choose_extended_classes() const;
  std::vector<const nlohmann::json*> current_slices() const;
  void count_device(const nlohmann::json& slice, const nlohmann::json& device) const;

  std::map<std::string, nlohmann::json> slices_;    // by name
  std::map<std::string, DeviceClass> classes_;      // by name
  std::map<std::string, ClaimTemplate> templates_;  // by namespace/name
  std::map<std::string, nlohmann::json> claims_;    // allocated claims, by namespace/name
  mutable bool counted_ = true;                     // whether the members below are up to date
  mutable std::map<std::string, std::string> class_by_extended_;
  mutable std::map<DeviceId, Device> devices_;           // usable devices of nodes
  mutable std::map<std::string, Resources> by_node_;     // by node
  mutable std::map<std::string, std::string> products_;  // by node
};

}  // namespace adaptdl::sched
