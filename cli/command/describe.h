// What can be said about a command from its options: help for people, JSON for man pages and tests.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "command/command.h"

namespace adaptdl::cli {

// The app of a command with everything registered. `exit_code` must outlive it.
std::unique_ptr<CLI::App> make_app(const Command& command, int& exit_code);

// Whether `app` does something without a verb: it has none, or takes arguments besides.
bool works_alone(const CLI::App& app);

// Follows leading `words` down the verbs of `app`, taking them from `words` and adding them to `path`. Stops at an
// option, when no words are left, and at a word that is no verb where it can be an argument. Throws UsageError on
// another word that is no verb.
CLI::App& descend(CLI::App& app, std::vector<std::string>& words, std::string& path);

// One line: "adaptdl run [OPTION]... [--] PROGRAM [ARG]...". `path` is what stands between "adaptdl" and the options.
std::string usage(const CLI::App& app, const std::string& path);

// What `adaptdl help PATH` prints.
std::string help_text(const CLI::App& app, const std::string& path);

// What `adaptdl help` prints.
std::string overview();

// All commands, verbs, options and arguments: [{name, path, summary, usage, options: [{names, value, help}], arguments:
// [{name, required, help}], commands: [...]}].
nlohmann::json describe_all();

// The options of `app` that are not positional and not hidden, in the order of registration.
std::vector<const CLI::Option*> visible_options(const CLI::App& app);

// The names of an option as they are typed, the short ones first: {"-n", "--replicas"}.
std::vector<std::string> option_words(const CLI::Option& option);

// What stands for an option's value in help, such as "DIR"; empty if it takes none.
std::string value_name(const CLI::Option& option);

}  // namespace adaptdl::cli
