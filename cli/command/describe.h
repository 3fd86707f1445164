// Describes commands from their options: as help for people, and as JSON for man pages and tests.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "command/command.h"

namespace adaptdl::cli {

// Creates the app of a command with everything registered. `exit_code` must outlive it.
std::unique_ptr<CLI::App> make_app(const Command& command, int& exit_code);

// Returns whether `app` works without a verb: it has no verbs, or accepts arguments as well.
bool works_alone(const CLI::App& app);

// Follows leading `words` down the verbs of `app`, and moves them from `words` to `path`. Stops at an option, when no
// words are left, and at a word that is not a verb but may be an argument. Throws UsageError at any other word that is
// not a verb.
CLI::App& descend(CLI::App& app, std::vector<std::string>& words, std::string& path);

// Returns text such as "adaptdl run [OPTION]... [--] PROGRAM [ARG]...", for which `path` is "run".
std::string usage(const CLI::App& app, const std::string& path);

// Returns the output of `adaptdl help PATH`.
std::string help_text(const CLI::App& app, const std::string& path);

// Returns the output of `adaptdl help`.
std::string overview();

// Returns all commands, verbs, options and arguments: [{name, path, summary, usage, options: [{names, value, help}],
// arguments: [{name, required, help}], commands: [...], footer}].
nlohmann::json describe_all();

// Returns the options of `app` that are neither positional nor hidden, in the order of registration.
std::vector<const CLI::Option*> visible_options(const CLI::App& app);

// Returns the names of an option as they are typed, short ones first: {"-n", "--replicas"}.
std::vector<std::string> option_words(const CLI::Option& option);

// Returns the name of an option's value in help, such as "DIR"; empty if the option does not accept one.
std::string value_name(const CLI::Option& option);

}  // namespace adaptdl::cli
