#include "image/registry/registry_auth.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "adaptdl/error.h"
#include "image/base/small_file.h"
#include "image/registry/credential_helper.h"

namespace adaptdl::image {
namespace {

// Helpers know Docker Hub by another name.
std::string helper_server_of(const std::string& registry) {
  return registry == "docker.io" ? "https://index.docker.io/v1/" : registry;
}

}  // namespace

std::vector<AuthPlace> auth_places(const std::function<const char*(const char*)>& variable) {
  const auto value = [&](const char* name) {
    const char* const text = variable(name);
    return std::filesystem::path(text ? text : "");
  };
  if (const auto file = value("REGISTRY_AUTH_FILE"); !file.empty()) return {{file, true}};
  std::vector<AuthPlace> places;
  if (const auto directory = value("DOCKER_CONFIG"); !directory.empty())
    places.push_back({directory / "config.json"});
  else if (const auto home = value("HOME"); !home.empty())
    places.push_back({home / ".docker" / "config.json"});
  if (const auto directory = value("XDG_RUNTIME_DIR"); !directory.empty())
    places.push_back({directory / "containers" / "auth.json"});
  return places;
}

Credentials find_credentials(const std::string& registry, const std::string& repository, const AuthOptions& options,
                             const std::stop_token& stop) {
  std::vector<AuthPlace> places;
  for (const auto& file : options.files) places.push_back({file, true});
  if (places.empty()) places = auth_places([](const char* name) -> const char* { return std::getenv(name); });
  for (const AuthPlace& place : places) {
    const std::optional<std::string> text = read_small_file(place.file, "registry credentials");
    if (!text && place.required)
      throw Error(
          fmt::format("cannot read '{}' (registry credentials): {}", place.file.string(), std::strerror(ENOENT)));
    if (!text) continue;
    const AuthFile file = parse_auth_file(*text, place.file.string());
    if (const std::string helper = find_helper(file, registry); !helper.empty()) {
      const std::optional<Credentials> found =
          ask_helper(helper, helper_server_of(registry), options.helper_patience, stop);
      if (found) return *found;
    }
    if (const std::optional<Credentials> found = find_auth(file, registry, repository)) return *found;
  }
  return {};
}

}  // namespace adaptdl::image
