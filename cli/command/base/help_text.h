// Describes commands based on their registered options: as help for users, and as JSON for man pages and tests.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "command/base/command.h"

namespace adaptdl::cli {

// Creates a command's app, with its options and verbs registered. `exit_code` must outlive the app.
std::unique_ptr<CLI::App> make_app(const Command& command, int& exit_code);

// Returns whether `app` works without a verb, that is, whether it has no verbs or also accepts arguments.
bool works_alone(const CLI::App& app);

// Follows the leading `words` through the verbs of `app`, and moves these words to `path`. Stops at an option, when no
// words are left, and at a word that is not a verb but may be an argument. Throws UsageError for any other word that is
// not a verb.
CLI::App& descend(CLI::App& app, std::vector<std::string>& words, std::string& path);

// Returns a usage line, such as "adaptdl run [OPTION]... [--] PROGRAM [ARG]..." if `path` is "run".
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

// Returns an option's names as the user types them, short names first: {"-n", "--replicas"}.
std::vector<std::string> option_words(const CLI::Option& option);

// Returns the name that help shows for an option's value, such as "DIR", or "" if the option does not accept a value.
std::string value_name(const CLI::Option& option);

}  // namespace adaptdl::cli
