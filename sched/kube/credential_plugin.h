// Asks a credential plugin: a program that prints an ExecCredential, as kubectl runs it.
//
// Threading: may be called while other threads run. The plugin's standard error is the user's, and so is the terminal's
// input where it may have it.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "kube/access.h"

namespace adaptdl::kube {

struct PluginAnswer {
  std::string token;
  std::string certificate, key;  // PEM; both or none
  std::optional<std::chrono::system_clock::time_point> expires;
};

// Runs the plugin of `access`, which has one. Throws Error: it is missing (with its install hint), fails, runs for
// longer than `patience`, or prints something else. What it printed is in no message.
PluginAnswer ask_plugin(const Access& access, std::chrono::milliseconds patience);

// What is in an ExecCredential of that version. Throws Error.
PluginAnswer parse_plugin_answer(const std::string& text, const std::string& api_version);

}  // namespace adaptdl::kube
