#include "command/base/help_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "base/text_parts.h"
#include "command/base/suggest.h"

namespace adaptdl::cli {
namespace {

constexpr std::size_t kHelpWidth = 100;

// Wraps `text` to lines of at most `width` columns, and indents all lines but the first.
std::string wrap(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (column > indent && column + 1 + word.size() > width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

// Formats two columns: terms and their descriptions.
std::string definition_list(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::size_t widest = 0;
  for (const auto& [term, text] : entries) widest = std::max(widest, std::min<std::size_t>(term.size(), 28));
  const std::size_t indent = widest + 4;
  std::string out;
  for (const auto& [term, text] : entries) {
    out += "  " + term;
    out += term.size() > widest ? '\n' + std::string(indent, ' ') : std::string(indent - 2 - term.size(), ' ');
    out += wrap(text, indent, kHelpWidth) + '\n';
  }
  return out;
}

std::vector<const CLI::Option*> arguments(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

std::vector<const CLI::App*> verbs(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* verb) { return !verb->get_group().empty(); });
}

std::string option_term(const CLI::Option& option) {
  std::string term;
  for (const std::string& word : option_words(option)) {
    // The long names are aligned, even if an option has no short name.
    if (term.empty() && word.starts_with("--")) term = "    ";
    if (!term.empty() && term != "    ") term += ", ";
    term += word;
  }
  const std::string value = value_name(option);
  return value.empty() ? term : term + ' ' + value;
}

nlohmann::json describe_command(const CLI::App& app, const std::string& path) {
  nlohmann::json options = nlohmann::json::array();
  for (const CLI::Option* option : visible_options(app)) {
    options.push_back(
        {{"names", option_words(*option)}, {"value", value_name(*option)}, {"help", option->get_description()}});
  }
  nlohmann::json positionals = nlohmann::json::array();
  for (const CLI::Option* argument : arguments(app)) {
    positionals.push_back({{"name", upper(argument->get_name(true))},
                           {"required", argument->get_required()},
                           {"help", argument->get_description()}});
  }
  nlohmann::json nested = nlohmann::json::array();
  for (const CLI::App* verb : verbs(app)) nested.push_back(describe_command(*verb, path + ' ' + verb->get_name()));
  return {{"name", app.get_name()},           {"path", path},
          {"summary", app.get_description()}, {"usage", usage(app, path)},
          {"options", std::move(options)},    {"arguments", std::move(positionals)},
          {"commands", std::move(nested)},    {"footer", app.get_footer()}};
}

}  // namespace

std::unique_ptr<CLI::App> make_app(const Command& command, int& exit_code) {
  auto app = std::make_unique<CLI::App>(std::string(command.summary), std::string(command.name));
  app->set_help_flag("-h,--help", "Show this help");
  // If an option is repeated, the last value wins, as in most commands, so that an alias can be overridden.
  app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  command.add(*app, exit_code);
  return app;
}

CLI::App& descend(CLI::App& app, std::vector<std::string>& words, std::string& path) {
  CLI::App* here = &app;
  for (auto candidates = verbs(*here); !candidates.empty(); candidates = verbs(*here)) {
    std::vector<std::string> names;
    for (const CLI::App* verb : candidates) names.push_back(verb->get_name());
    if (words.empty() || words.front().starts_with('-')) break;
    if (std::ranges::find(names, words.front()) == names.end()) {
      if (works_alone(*here)) break;
      const auto match = closest(words.front(), names);
      throw UsageError(fmt::format("{}: no such verb: '{}'{} (see `adaptdl help {}`)", path, words.front(),
                                   match ? fmt::format("; did you mean '{}'?", *match) : "", path));
    }
    here = here->get_subcommand(words.front());
    path += ' ' + words.front();
    words.erase(words.begin());
  }
  return *here;
}

bool works_alone(const CLI::App& app) {
  return verbs(app).empty() || !arguments(app).empty() || app.get_prefix_command();
}

std::vector<const CLI::Option*> visible_options(const CLI::App& app) {
  return app.get_options(
      [](const CLI::Option* option) { return !option->get_positional() && !option->get_group().empty(); });
}

std::vector<std::string> option_words(const CLI::Option& option) {
  std::vector<std::string> words;
  for (const std::string& name : option.get_snames()) words.push_back('-' + name);
  for (const std::string& name : option.get_lnames()) words.push_back("--" + name);
  return words;
}

std::string value_name(const CLI::Option& option) {
  return option.get_items_expected_max() == 0 ? "" : option.get_type_name();
}

std::string usage(const CLI::App& app, const std::string& path) {
  std::string line = "adaptdl " + path;
  if (!works_alone(app)) return line + " VERB [OPTION]...";
  line += " [OPTION]...";
  for (const CLI::Option* option : visible_options(app)) {
    if (option->get_required()) line += fmt::format(" {} {}", option_words(*option).front(), value_name(*option));
  }
  for (const CLI::Option* argument : arguments(app)) {
    const std::string name = upper(argument->get_name(true)) + (argument->get_items_expected_max() > 1 ? "..." : "");
    line += argument->get_required() ? ' ' + name : " [" + name + ']';
  }
  if (app.get_prefix_command()) line += " [--] PROGRAM [ARG]...";
  return line;
}

std::string help_text(const CLI::App& app, const std::string& path) {
  std::string text = fmt::format("Usage: {}\n\n{}\n", usage(app, path), wrap(app.get_description(), 0, kHelpWidth));
  std::vector<std::pair<std::string, std::string>> entries;
  for (const CLI::App* verb : verbs(app)) entries.emplace_back(verb->get_name(), verb->get_description());
  const std::string nested = entries.empty() ? ""
                                             : fmt::format(
                                                   "\nVerbs:\n{}\n`adaptdl help {} VERB` shows a verb's "
                                                   "options.\n",
                                                   definition_list(entries), path);
  if (!works_alone(app)) return text + nested;
  entries.clear();
  for (const CLI::Option* argument : arguments(app)) {
    entries.emplace_back(upper(argument->get_name(true)), argument->get_description());
  }
  if (!entries.empty()) text += "\nArguments:\n" + definition_list(entries);
  entries.clear();
  for (const CLI::Option* option : visible_options(app))
    entries.emplace_back(option_term(*option), option->get_description());
  if (!entries.empty()) text += "\nOptions:\n" + definition_list(entries);
  text += nested;
  if (!app.get_footer().empty()) text += '\n' + app.get_footer() + '\n';
  return text;
}

std::string overview() {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const Command& command : commands()) entries.emplace_back(command.name, command.summary);
  return fmt::format(
      "Usage: adaptdl COMMAND [OPTION]...\n\nElastic deep learning: train on any number of replicas, and resume with "
      "a different number.\n"
      "\nCommands:\n{}\nOptions:\n{}\n`adaptdl help COMMAND` shows a command's options.\n",
      definition_list(entries),
      definition_list({{"-h, --help", "Show this help"}, {"-V, --version", "Show the version"}}));
}

nlohmann::json describe_all() {
  nlohmann::json all = nlohmann::json::array();
  for (const Command& command : commands()) {
    int exit_code = 0;
    all.push_back(describe_command(*make_app(command, exit_code), std::string(command.name)));
  }
  return all;
}

}  // namespace adaptdl::cli
