// The image of a job that is submitted: where it goes to, and how it gets there.
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
  std::uint16_t proxy_port = 0;  // on which the cluster's registry is reached; 0: a free one
};

// The Dockerfile to build by; empty if the project has none, and none of adaptdl's own fits it. Throws UsageError if
// the one asked for is not there.
std::filesystem::path find_dockerfile(const SubmitImageOptions& options);

// Why no own Dockerfile fits, and what to do.
std::string no_dockerfile(const SubmitImageOptions& options);

// Where an image is pushed to: a repository of the user's, or the registry of the cluster.
class ImageTarget {
 public:
  // ADAPTDL_SUBMIT_REPO's. Throws UsageError if that is set to anything that is no repository; null if it is not set.
  static std::optional<ImageTarget> of_environment();
  // That of the cluster. Throws Error if it has none.
  static ImageTarget of_cluster(kube::Client& client);

  // What nodes pull it by, but for the digest.
  std::string pulled_as() const;
  // Builds it and pushes it, and returns what nodes pull it by. Throws Error, and http::Stopped at a stop.
  std::string build_and_push(const std::filesystem::path& dockerfile, const SubmitImageOptions& options,
                             const std::stop_token& stop) const;

 private:
  image::Reference repository_;                  // of the environment
  std::optional<kube::ImageRegistry> registry_;  // of the cluster
  kube::Client* client_ = nullptr;
};

}  // namespace adaptdl::cli
