#include "command/base/registry_flags.h"

#include <fmt/format.h>

#include <cstdlib>

#include "adaptdl/error.h"
#include "image/dockerfile/values.h"

namespace adaptdl::cli {
namespace {

void add_several(CLI::App& app, const char* name, std::vector<std::string>& values, const char* help,
                 const char* value) {
  app.add_option(name, values, help)
      ->type_name(value)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

std::chrono::seconds stall_of(const char* variable, std::chrono::seconds usual) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return usual;
  try {
    return std::chrono::ceil<std::chrono::seconds>(image::parse_duration(text));
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}", variable, error.what()));
  }
}

}  // namespace

void add_registry_flags(CLI::App& app, RegistryFlags& flags) {
  add_several(app, "--plain-http", flags.plain_http,
              "Registry to reach without TLS; not needed for registries on localhost; may be given several times",
              "REGISTRY");
  add_several(app, "--ca", flags.authorities, "File with additional trusted certificates; may be given several times",
              "FILE");
  add_several(app, "--mirror", flags.mirrors, "Mirror to try before the registry; may be given several times",
              "REGISTRY=MIRROR");
}

image::RegistryOptions registry_options(const RegistryFlags& flags, std::string_view command) {
  image::RegistryOptions registry;
  registry.plain_http.insert(flags.plain_http.begin(), flags.plain_http.end());
  registry.stall = stall_of("ADAPTDL_REGISTRY_STALL", registry.stall);
  registry.authorities.assign(flags.authorities.begin(), flags.authorities.end());
  for (const std::string& text : flags.mirrors) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw UsageError(fmt::format("{}: --mirror must be REGISTRY=MIRROR, not '{}'", command, text));
    registry.mirrors[text.substr(0, equals)].push_back(text.substr(equals + 1));
  }
  return registry;
}

}  // namespace adaptdl::cli
