// Builds the image of a submitted job, and pushes it to the registry from which the nodes pull it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "command/base/registry_flags.h"
#include "image/registry/reference.h"
#include "kube/api/client.h"
#include "kube/jobs/image_registry.h"

namespace adaptdl::cli {

struct SubmitImageOptions {
  std::filesystem::path project;
  std::filesystem::path dockerfile;          // if empty, the project's own, or one that adaptdl provides
  std::vector<std::string> build_arguments;  // NAME=VALUE
  std::vector<std::string> secrets;
  std::string target;
  bool no_cache = false;
  RegistryFlags registry;
  std::uint16_t proxy_port = 0;  // local port for the cluster's registry; 0 selects a free port
};

// Returns the Dockerfile to build, or an empty path if the project has no Dockerfile and none of adaptdl's own
// Dockerfiles is suitable. Throws UsageError if the options name a Dockerfile that does not exist.
std::filesystem::path find_dockerfile(const SubmitImageOptions& options);

// Explains why none of adaptdl's own Dockerfiles is suitable, and what to do.
std::string no_dockerfile(const SubmitImageOptions& options);

// Where an image is pushed: a repository of the user's choice, or the cluster's registry.
class ImageTarget {
 public:
  // Returns the repository in ADAPTDL_SUBMIT_REPO, or nullopt if the variable is not set. Throws UsageError if its
  // value is not a valid repository.
  static std::optional<ImageTarget> of_environment();
  // Returns the cluster's registry. Throws Error if the cluster has none.
  static ImageTarget of_cluster(kube::Client& client);

  // Returns the name under which nodes pull the image, without the digest.
  std::string pulled_as() const;
  // Builds and pushes the image, and returns the name under which nodes pull it. Throws Error, or http::Stopped if a
  // stop is requested.
  std::string build_and_push(const std::filesystem::path& dockerfile, const SubmitImageOptions& options,
                             const std::stop_token& stop) const;

 private:
  image::Reference repository_;                  // from the environment
  std::optional<kube::ImageRegistry> registry_;  // the cluster's
  kube::Client* client_ = nullptr;
};

}  // namespace adaptdl::cli
