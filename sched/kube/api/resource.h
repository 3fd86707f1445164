// The kinds of objects in a cluster, and their paths on the API server.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::kube {

struct Resource {
  std::string_view group;  // empty: the core group
  std::string_view version;
  std::string_view plural;
  std::string_view kind;
};

inline constexpr Resource kPods{"", "v1", "pods", "Pod"};
inline constexpr Resource kEvents{"", "v1", "events", "Event"};
inline constexpr Resource kNodes{"", "v1", "nodes", "Node"};
inline constexpr Resource kConfigMaps{"", "v1", "configmaps", "ConfigMap"};
inline constexpr Resource kSecrets{"", "v1", "secrets", "Secret"};
inline constexpr Resource kServices{"", "v1", "services", "Service"};
inline constexpr Resource kPersistentVolumeClaims{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"};
inline constexpr Resource kDeployments{"apps", "v1", "deployments", "Deployment"};
inline constexpr Resource kLeases{"coordination.k8s.io", "v1", "leases", "Lease"};
inline constexpr Resource kStorageClasses{"storage.k8s.io", "v1", "storageclasses", "StorageClass"};
inline constexpr Resource kValidatingWebhookConfigurations{
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"};
inline constexpr Resource kMutatingWebhookConfigurations{
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"};
// Dynamic resource allocation, since Kubernetes 1.34.
inline constexpr Resource kDeviceClasses{"resource.k8s.io", "v1", "deviceclasses", "DeviceClass"};
inline constexpr Resource kResourceClaims{"resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"};
inline constexpr Resource kResourceClaimTemplates{"resource.k8s.io", "v1", "resourceclaimtemplates",
                                                  "ResourceClaimTemplate"};
inline constexpr Resource kResourceSlices{"resource.k8s.io", "v1", "resourceslices", "ResourceSlice"};
inline constexpr Resource kAdaptDLJobs{"adaptdl.petuum.com", "v1", "adaptdljobs", "AdaptDLJob"};

// Returns the path of a collection, an object, or a subresource (such as "log", "exec", "status"). An empty namespace
// means all namespaces or a cluster-scoped object. Names are escaped.
std::string path(const Resource& resource, std::string_view name_space, std::string_view name = {},
                 std::string_view subresource = {});

// Returns whether resourceVersion `a` is older than `b`. Resource versions are formally opaque, but all known API
// servers use numbers; returns false if either is not a number.
bool is_older_version(std::string_view a, std::string_view b);

}  // namespace adaptdl::kube
