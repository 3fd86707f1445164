#include "command/dispatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "adaptdl/error.h"
#include "command/base/command.h"
#include "command/base/help_text.h"
#include "command/base/suggest.h"
#include "terminal/print.h"

namespace adaptdl::cli {
namespace {

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const auto match = closest(word, candidates);
  return match ? fmt::format("; did you mean '{}'?", *match) : "";
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  return names;
}

// Returns the long option names of `app`, with their dashes.
std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Reports only the first unknown word, because the user has to fix it first; CLI11 would report all unknown words.
void refuse_unknown_words(const CLI::App& app, const std::string& path) {
  const std::vector<std::string> rest = app.remaining();
  if (rest.empty() || (rest.size() == 1 && rest[0] == "--")) return;
  const std::string& word = rest.front();
  if (word.size() > 1 && word.front() == '-' && word != "--") {
    const std::string name = word.substr(0, word.find('='));
    throw UsageError(fmt::format("{}: unknown option '{}'{} (see `adaptdl help {}`)", path, name,
                                 did_you_mean(name, option_names(app)), path));
  }
  if (app.get_prefix_command()) return;
  throw UsageError(fmt::format("{}: unexpected argument '{}' (see `adaptdl help {}`)", path,
                               word == "--" && rest.size() > 1 ? rest[1] : word, path));
}

// Reports the missing value of "--name=", because CLI11 would use the next word as the value.
void refuse_empty_values(const CLI::App& app, const std::vector<std::string>& words, const std::string& path) {
  for (const std::string& word : words) {
    if (word == "--") return;
    if (word.starts_with("--") && word.ends_with('=') && app.get_option_no_throw(word.substr(0, word.size() - 1))) {
      throw UsageError(
          fmt::format("{}: {} needs a value (see `adaptdl help {}`)", path, word.substr(0, word.size() - 1), path));
    }
    if (app.get_prefix_command() && !word.starts_with('-')) return;
  }
}

// Rewords a CLI11 error with the names that help uses.
std::string explain(const CLI::ParseError& error, const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::Option* last = words.empty() ? nullptr : app.get_option_no_throw(words.back());
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && last != nullptr) {
    return fmt::format("{} needs a value: {}", words.back(), value_name(*last));
  }
  std::string message = error.what();
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !message.starts_with('-')) {
    // CLI11 reports "dir is required", but help calls the argument DIR.
    const auto name_end = std::ranges::find(message, ' ');
    std::transform(message.begin(), name_end, message.begin(), [](unsigned char c) { return std::toupper(c); });
  } else if (!message.empty()) {
    message.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(message.front())));
  }
  return message;
}

void parse(CLI::App& app, const std::vector<std::string>& words, const std::string& path) {
  refuse_empty_values(app, words, path);
  // The callback below reports words that CLI11 does not know, before the command does anything.
  app.allow_extras();
  // Verbs precede arguments, and descend() has already followed all verbs: a word after an argument is also an
  // argument, even if a verb has the same name.
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) verb->disabled();
  app.parse_complete_callback([&app, &path] { refuse_unknown_words(app, path); });
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    print_text(help_text(app, path));
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}: {} (see `adaptdl help {}`)", path, explain(error, app, words), path));
  }
}

}  // namespace

int dispatch(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    print_text(overview());
    return 0;
  }
  if (words[0] == "--version" || words[0] == "-V") {
    print_out("adaptdl {}\n", ADAPTDL_VERSION);
    return 0;
  }
  if (words[0].starts_with('-')) {
    throw UsageError(fmt::format("unknown option '{}'{} (see `adaptdl help`)", words[0],
                                 did_you_mean(words[0], {"--version", "--help"})));
  }
  const Command* command = find_command(words[0]);
  if (command == nullptr) {
    throw UsageError(
        fmt::format("no such command: '{}'{} (see `adaptdl help`)", words[0], did_you_mean(words[0], command_names())));
  }
  int exit_code = 0;
  const auto root = make_app(*command, exit_code);
  std::vector<std::string> rest(words.begin() + 1, words.end());
  std::string path(command->name);
  CLI::App& app = descend(*root, rest, path);
  if (rest.empty() && !works_alone(app)) {
    throw UsageError(fmt::format("{}: a verb is required (see `adaptdl help {}`)", path, path));
  }
  parse(app, rest, path);
  return exit_code;
}

}  // namespace adaptdl::cli
