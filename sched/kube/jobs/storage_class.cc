#include "kube/jobs/storage_class.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "adaptdl/error.h"
#include "kube/api/json_fields.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

constexpr const char* kOldDefaultClassAnnotation = "storageclass.beta.kubernetes.io/is-default-class";

// Provisioners of shared file systems, identified by a word in their name, delimited by '.', '/' or '-'.
constexpr std::array<std::string_view, 17> kSharedWords{
    "efs",  "nfs",     "cephfs", "azurefile", "filestore", "glusterfs", "fsx",     "lustre",   "beegfs",
    "weka", "juicefs", "smb",    "longhorn",  "quobyte",   "cfs",       "moosefs", "seaweedfs"};
// Other provisioners of shared file systems, identified by a part of their name.
constexpr std::array<std::string_view, 6> kSharedNames{"microk8s.io/hostpath",     "file.csi.azure.com",
                                                       "kubernetes.io/azure-file", "vpc.file.csi.ibm.io",
                                                       "ibm.io/ibmc-file",         "nfs-subdir-external-provisioner"};

bool has_word(std::string_view name, std::string_view word) {
  constexpr std::string_view kBetween = "./-";
  for (std::size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || kBetween.find(name[at - 1]) != kBetween.npos) &&
        (end == name.size() || kBetween.find(name[end]) != kBetween.npos))
      return true;
  }
  return false;
}

std::string listed(const std::vector<json>& classes) {
  std::vector<std::string> names;
  for (const json& one : classes)
    names.push_back(fmt::format("{} ({}{})", name_of(one), text_field(one, {"provisioner"}),
                                is_default_storage(one) ? ", default" : ""));
  return names.empty() ? "the cluster has none" : fmt::format("available: {}", fmt::join(names, ", "));
}

}  // namespace

bool is_shared_storage(const json& storage_class) {
  const std::string provisioner = text_field(storage_class, {"provisioner"});
  return std::ranges::any_of(kSharedWords, [&](std::string_view word) { return has_word(provisioner, word); }) ||
         std::ranges::any_of(kSharedNames, [&](std::string_view name) { return provisioner.find(name) != name.npos; });
}

bool is_default_storage(const json& storage_class) {
  return text_field(storage_class, {"metadata", "annotations", kDefaultClassAnnotation}) == "true" ||
         text_field(storage_class, {"metadata", "annotations", kOldDefaultClassAnnotation}) == "true";
}

StorageChoice choose_job_storage(const std::vector<json>& classes, const std::string& wanted, bool several) {
  if (!wanted.empty()) {
    const auto found = std::ranges::find(classes, wanted, name_of);
    if (found == classes.end()) throw Error(fmt::format("storage class '{}' not found; {}", wanted, listed(classes)));
    return {wanted, several || is_shared_storage(*found) ? "ReadWriteMany" : "ReadWriteOnce"};
  }
  const json* chosen = nullptr;
  for (const json& one : classes) {
    if (is_shared_storage(one) && (chosen == nullptr || is_default_storage(one))) chosen = &one;
  }
  if (chosen != nullptr) return {name_of(*chosen)};
  if (!several) {
    // A volume that only one node can mount is enough if the cluster has only one node.
    const auto found = classes.size() == 1 ? classes.begin() : std::ranges::find_if(classes, is_default_storage);
    if (found != classes.end()) return {name_of(*found), "ReadWriteOnce"};
  }
  if (classes.empty())
    throw Error(fmt::format("the cluster has no storage classes; create one{}",
                            several ? " whose volumes several nodes can share" : ""));
  throw Error(fmt::format("{}; choose one with --checkpoint-storage-class; {}",
                          several ? "no storage class is known to provide volumes that several nodes can share"
                                  : "cannot choose a storage class: none is the default",
                          listed(classes)));
}

StorageChoice choose_job_storage(Client& client, const std::string& wanted) {
  const auto visible = [&](const Resource& resource) -> std::optional<std::vector<json>> {
    try {
      return client.list(path(resource, ""));
    } catch (const ApiError& error) {
      if (error.code() != 403) throw;
      return std::nullopt;
    }
  };
  const auto classes = visible(kStorageClasses);
  if (!classes) {
    if (!wanted.empty()) return {wanted};
    throw Error(
        fmt::format("user '{}' is not permitted to list the cluster's storage classes; use "
                    "--checkpoint-storage-class to choose one whose volumes several nodes can share",
                    client.access().user));
  }
  const auto nodes = visible(kNodes);
  return choose_job_storage(*classes, wanted, !nodes || nodes->size() != 1);
}

}  // namespace adaptdl::kube
