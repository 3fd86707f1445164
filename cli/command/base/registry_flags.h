// Registry options of the commands that pull or push images.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "image/registry/registry_options.h"

namespace adaptdl::cli {

struct RegistryFlags {
  std::vector<std::string> plain_http, authorities, mirrors;
};

// Adds --plain-http, --ca and --mirror.
void add_registry_flags(CLI::App& app, RegistryFlags& flags);

// Converts the flags, and reads ADAPTDL_REGISTRY_STALL. Throws a UsageError with a message that begins with the command
// or the variable.
image::RegistryOptions registry_options(const RegistryFlags& flags, std::string_view command);

}  // namespace adaptdl::cli
