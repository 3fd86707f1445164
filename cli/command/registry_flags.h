// The options with which a command that pulls and pushes images reaches their registries.
//
// Threading: used by one thread at a time.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "image/registry_options.h"

namespace adaptdl::cli {

struct RegistryFlags {
  std::vector<std::string> plain_http, authorities, mirrors;
};

// --plain-http, --ca and --mirror.
void add_registry_flags(CLI::App& app, RegistryFlags& flags);

// What they say, and ADAPTDL_REGISTRY_STALL. Throws UsageError that begins with the name of the command or the variable.
image::RegistryOptions registry_options(const RegistryFlags& flags, std::string_view command);

}  // namespace adaptdl::cli
