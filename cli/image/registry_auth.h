// Which credentials a registry gets: those of the first place that has some.
//
// The places: the file that REGISTRY_AUTH_FILE names, and then no other; else Docker's config.json (in $DOCKER_CONFIG
// or
// ~/.docker), then containers' auth.json (in $XDG_RUNTIME_DIR/containers). Within a file, a helper of `credHelpers`
// comes before `credsStore`, and both before `auths`: an old entry does not shadow what a helper knows.
//
// Threading: may be called from any thread; the files are read at every call.
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
  // The files, in order, instead of those of the environment.
  std::vector<std::filesystem::path> files;
  std::chrono::milliseconds helper_patience = std::chrono::seconds(30);
};

// Empty ones if no place has any. Throws Error: a file cannot be read or is none, or a helper fails.
Credentials find_credentials(const std::string& registry, const std::string& repository,
                             const AuthOptions& options = {}, const std::stop_token& stop = {});

// The files of the environment, in order; that of REGISTRY_AUTH_FILE has to be there.
struct AuthPlace {
  std::filesystem::path file;
  bool required = false;
};
std::vector<AuthPlace> auth_places(const std::function<const char*(const char*)>& variable);

}  // namespace adaptdl::image
