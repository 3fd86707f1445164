// Builds the image of a job that is submitted, and pushes it to where the nodes pull it from.
//
// Threading: used by one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "command/registry_flags.h"
#include "image/reference.h"
#include "kube/client.h"
#include "kube/image_registry.h"

namespace adaptdl::cli {

struct SubmitImageOptions {
  std::filesystem::path project;
  std::filesystem::path dockerfile;          // empty: the project's, else one of adaptdl's own
  std::vector<std::string> build_arguments;  // NAME=VALUE
  std::vector<std::string> secrets;
  std::string target;
  bool no_cache = false;
  RegistryFlags registry;
  std::uint16_t proxy_port = 0;  // local port for the cluster's registry; 0: a free one
};

// Returns the Dockerfile to build; empty if the project has none, and none of adaptdl's own fits it. Throws UsageError
// if the one in the options does not exist.
std::filesystem::path find_dockerfile(const SubmitImageOptions& options);

// Explains why none of adaptdl's own Dockerfiles fits, and what to do.
std::string no_dockerfile(const SubmitImageOptions& options);

// Where an image is pushed: to a repository of the user, or to the registry of the cluster.
class ImageTarget {
 public:
  // Returns the repository in ADAPTDL_SUBMIT_REPO; null if that is not set. Throws UsageError if it is not a valid one.
  static std::optional<ImageTarget> of_environment();
  // Returns the registry of the cluster. Throws Error if it has none.
  static ImageTarget of_cluster(kube::Client& client);

  // Returns the name by which nodes pull the image, without the digest.
  std::string pulled_as() const;
  // Builds and pushes the image, and returns the name by which nodes pull it. Throws Error, or http::Stopped on a stop.
  std::string build_and_push(const std::filesystem::path& dockerfile, const SubmitImageOptions& options,
                             const std::stop_token& stop) const;

 private:
  image::Reference repository_;                  // of the environment
  std::optional<kube::ImageRegistry> registry_;  // of the cluster
  kube::Client* client_ = nullptr;
};

}  // namespace adaptdl::cli
