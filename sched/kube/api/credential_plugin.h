// Runs a credential plugin, a program that prints an ExecCredential, in the same way as kubectl does.
//
// Threading: the functions may be called while other threads run. The plugin inherits standard error, and standard
// input if it is a terminal that the plugin may read.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "kube/api/access.h"

namespace adaptdl::kube {

struct PluginAnswer {
  std::string token;
  std::string certificate, key;  // PEM; both or neither
  std::optional<std::chrono::system_clock::time_point> expires;
};

// Runs the plugin of `access`, which must have one. Throws Error if the plugin is missing (with its install hint),
// fails, runs for longer than `patience`, or does not print a valid ExecCredential. No message contains the plugin's
// output.
PluginAnswer ask_plugin(const Access& access, std::chrono::milliseconds patience);

// Parses an ExecCredential of the given API version. Throws Error.
PluginAnswer parse_plugin_answer(const std::string& text, const std::string& api_version);

}  // namespace adaptdl::kube
