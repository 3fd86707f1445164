// Selects the credentials for a registry: those of the first source that has some.
//
// The sources are the file that REGISTRY_AUTH_FILE names, and no other; without it, Docker's config.json (in
// $DOCKER_CONFIG or ~/.docker), then containers' auth.json (in $XDG_RUNTIME_DIR/containers). Within a file,
// `credHelpers` precedes `credsStore`, and both precede `auths`, so that an old entry does not hide a helper's.
//
// Threading: may be called from any thread; every call reads the files.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "image/auth_file.h"

namespace adaptdl::image {

struct AuthOptions {
  // The files to search, in order, instead of those of the environment.
  std::vector<std::filesystem::path> files;
  std::chrono::milliseconds helper_patience = std::chrono::seconds(30);
};

// Returns empty credentials if no source has any. Throws Error if a file cannot be read or parsed, or a helper fails.
Credentials find_credentials(const std::string& registry, const std::string& repository,
                             const AuthOptions& options = {}, const std::stop_token& stop = {});

// The files of the environment, in order; that of REGISTRY_AUTH_FILE must exist.
struct AuthPlace {
  std::filesystem::path file;
  bool required = false;
};
std::vector<AuthPlace> auth_places(const std::function<const char*(const char*)>& variable);

}  // namespace adaptdl::image
