#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "command/base/command.h"
#include "command/base/help_text.h"
#include "command/base/suggest.h"
#include "command/complete.h"
#include "terminal/dump_json.h"
#include "terminal/print.h"

namespace adaptdl::cli {
namespace {

struct HelpOptions {
  std::vector<std::string> command;
  bool json = false;
  bool complete = false;
};

std::string help_on(std::vector<std::string> words) {
  const Command* command = find_command(words[0]);
  if (command == nullptr) {
    std::vector<std::string> names;
    for (const Command& other : commands()) names.emplace_back(other.name);
    const auto match = closest(words[0], names);
    throw UsageError(fmt::format("help: no such command: '{}'{}", words[0],
                                 match ? fmt::format("; did you mean '{}'?", *match) : ""));
  }
  int unused = 0;
  const auto root = make_app(*command, unused);
  std::string path(command->name);
  words.erase(words.begin());
  const CLI::App& app = descend(*root, words, path);
  if (!words.empty()) throw UsageError(fmt::format("help: {} has no verb '{}'", path, words[0]));
  return help_text(app, path);
}

void show_help(const HelpOptions& options) {
  if (options.complete) {
    for (const std::string& candidate : complete(options.command)) {
      // The shells' completion scripts expect a tab before the description.
      const std::size_t tab = std::min(candidate.find('\t'), candidate.size());
      print_raw(printable(candidate.substr(0, tab)));
      print_raw(tab < candidate.size() ? '\t' + printable(candidate.substr(tab + 1)) + '\n' : "\n");
    }
  } else if (options.json) {
    print_text(dump_json(describe_all()) + '\n');
  } else if (options.command.empty()) {
    print_text(overview());
  } else {
    print_text(help_on(options.command));
  }
}

}  // namespace

void add_help(CLI::App& app, int&) {
  auto options = std::make_shared<HelpOptions>();
  app.add_option("command", options->command, "Command, optionally followed by one of its verbs");
  // Shell completion calls `adaptdl help --complete -- WORD...`.
  app.add_flag("--complete", options->complete)->group("");
  // This prints everything that help shows, for man pages and tests.
  app.add_flag("--dump-json", options->json)->group("");
  app.callback([options] { show_help(*options); });
}

}  // namespace adaptdl::cli
