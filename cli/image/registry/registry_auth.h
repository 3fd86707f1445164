// Selects the credentials for a registry, from the first source that contains any.
//
// If REGISTRY_AUTH_FILE is set, the file that it names is the only source. If not, the sources are Docker's config.json
// (in $DOCKER_CONFIG or ~/.docker), then containers' auth.json (in $XDG_RUNTIME_DIR/containers). Within a file,
// `credHelpers` precedes `credsStore`, and both precede `auths`, so that an old entry does not hide a helper's
// credentials. Every call reads the files again.
//
// Threading: the functions may be called from any thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "image/registry/auth_file.h"

namespace adaptdl::image {

struct AuthOptions {
  // The files to search, in order, instead of the files that the environment specifies.
  std::vector<std::filesystem::path> files;
  std::chrono::milliseconds helper_patience = std::chrono::seconds(30);
};

// Returns empty credentials if no source contains any. Throws Error if a file cannot be read or parsed, or if a helper
// fails.
Credentials find_credentials(const std::string& registry, const std::string& repository,
                             const AuthOptions& options = {}, const std::stop_token& stop = {});

// The files that the environment specifies, in order. The file that REGISTRY_AUTH_FILE names must exist.
struct AuthPlace {
  std::filesystem::path file;
  bool required = false;
};
std::vector<AuthPlace> auth_places(const std::function<const char*(const char*)>& variable);

}  // namespace adaptdl::image
