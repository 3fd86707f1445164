#include "command/complete.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>

#include "adaptdl/error.h"
#include "command/base/cluster_options.h"
#include "command/base/command.h"
#include "command/base/help_text.h"
#include "kube/api/json_fields.h"
#include "kube/api/resource.h"
#include "local/record/run_directory.h"
#include "local/record/run_record.h"

namespace adaptdl::cli {
namespace {

using Candidates = std::vector<std::string>;

void offer(Candidates& candidates, std::string_view typed, const std::string& word, const std::string& description) {
  if (word.starts_with(typed)) candidates.push_back(word + '\t' + description);
}

Candidates run_names(std::string_view typed) {
  Candidates candidates;
  try {
    for (const sched::RunEntry& run : sched::list_runs(sched::runs_directory()))
      offer(candidates, typed, run.status.name, run.status.state);
  } catch (const Error&) {
    return {};  // no home directory, so no runs
  }
  return candidates;
}

// Completion waits at most this long for a cluster, and offers at most this many of the cluster's jobs.
constexpr auto kCompletionTimeout = std::chrono::milliseconds(300);
constexpr const char* kMaxJobs = "200";

// Extracts, from the words before the last one, the options that select a cluster.
ClusterOptions cluster_options(const std::vector<std::string>& words) {
  ClusterOptions options;
  const auto value = [&words](std::size_t i, std::initializer_list<std::string_view> names, std::string& to) {
    for (const std::string_view name : names) {
      if (words[i] == name && i + 2 < words.size()) to = words[i + 1];
      if (words[i].starts_with(name) && words[i].substr(name.size()).starts_with('='))
        to = words[i].substr(name.size() + 1);
    }
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    value(i, {"-n", "--namespace"}, options.name_space);
    value(i, {"--context"}, options.context);
    options.local = options.local || words[i] == "--local";
  }
  return options;
}

// Offers no jobs if the cluster is unreachable or slow, because a shell that hangs would be worse.
Candidates job_names(std::string_view typed, const std::vector<std::string>& words) {
  Candidates candidates;
  try {
    const auto access = cluster_access(cluster_options(words));
    if (!access || access->exec) return {};  // a credential plugin may ask for a password
    kube::Client client(*access,
                        {.connect_timeout = kCompletionTimeout, .timeout = kCompletionTimeout, .patience = {}});
    const auto jobs = client.get(kube::path(kube::kAdaptDLJobs, access->name_space), {{"limit", kMaxJobs}});
    for (const auto& job : kube::array_field(jobs, {"items"}))
      offer(candidates, typed, kube::text_field(job, {"metadata", "name"}), kube::text_field(job, {"status", "phase"}));
  } catch (const Error&) {
    return {};
  }
  return candidates;
}

// Returns the possible values of an option or argument whose type name is `kind`. `before` is the part of the same word
// that precedes the value, and `words` contains all words typed so far.
Candidates values(const std::string& kind, std::string_view typed, const std::vector<std::string>& words,
                  const std::string& before = "") {
  Candidates candidates;
  if (kind == "DIR") return {":dir"};
  if (kind == "FILE") return {":file"};
  if (kind == "RUN") return run_names(typed);
  if (kind == "JOB") {
    const Command* command = find_command(words.front());
    const bool cluster = std::ranges::find(words, "--cluster") != words.end() ||
                         (command != nullptr && command->needs == Needs::kCluster);
    candidates = cluster ? Candidates() : run_names(typed);
    std::ranges::move(job_names(typed, words), std::back_inserter(candidates));
    return candidates;
  }
  if (kind.find('|') == std::string::npos) return candidates;
  std::istringstream choices(kind);
  for (std::string choice; std::getline(choices, choice, '|');) {
    // Choices with capitals are placeholders, such as N in "N|auto".
    const bool has_capitals = std::ranges::any_of(choice, [](unsigned char c) { return std::isupper(c) != 0; });
    if (std::islower(static_cast<unsigned char>(choice[0])) != 0 && !has_capitals && choice.starts_with(typed))
      candidates.push_back(before + choice + '\t');
  }
  return candidates;
}

Candidates command_candidates(std::string_view typed) {
  Candidates candidates;
  for (const Command& command : commands())
    offer(candidates, typed, std::string(command.name), std::string(command.summary));
  return candidates;
}

Candidates option_candidates(const CLI::App& app, std::string_view typed) {
  Candidates candidates;
  for (const CLI::Option* option : visible_options(app)) {
    for (const std::string& word : option_words(*option)) offer(candidates, typed, word, option->get_description());
  }
  return candidates;
}

// Returns the candidates for an argument that follows `before` other arguments.
Candidates argument_candidates(const CLI::App& app, const std::vector<std::string>& words, std::size_t before) {
  const std::string& typed = words.back();
  Candidates candidates;
  // If the argument can also be a path, verbs are offered only once something is typed.
  if (before == 0 && (!typed.empty() || !works_alone(app))) {
    for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
      offer(candidates, typed, verb->get_name(), verb->get_description());
  }
  if (!candidates.empty()) return candidates;
  if (app.get_prefix_command()) return {":program"};
  if (app.get_name() == "help") return command_candidates(typed);
  for (const CLI::Option* argument :
       app.get_options([](const CLI::Option* option) { return option->get_positional(); })) {
    if (before-- == 0 || argument->get_items_expected_max() > 1) return values(argument->get_type_name(), typed, words);
  }
  return candidates;
}

Candidates complete_verb(const CLI::App& app, const std::vector<std::string>& words, std::size_t first) {
  const std::string& typed = words.back();
  const CLI::Option* pending = nullptr;  // the option whose value is the next word
  bool only_arguments = false;
  std::size_t given = 0;  // number of arguments
  for (std::size_t i = first; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (pending != nullptr) {
      pending = nullptr;
    } else if (word == "--") {
      only_arguments = true;
      if (app.get_prefix_command() && i + 2 < words.size()) return {fmt::format(":rest {}", i + 1)};
    } else if (!only_arguments && word.starts_with('-')) {
      const CLI::Option* option = app.get_option_no_throw(word);
      if (option != nullptr && !value_name(*option).empty()) pending = option;
    } else if (app.get_prefix_command()) {
      return {fmt::format(":rest {}", i)};
    } else {
      ++given;
    }
  }
  if (pending != nullptr) return values(value_name(*pending), typed, words);
  if (only_arguments || !typed.starts_with('-')) return argument_candidates(app, words, given);
  const std::size_t equals = typed.find('=');
  if (equals == std::string::npos) return option_candidates(app, typed);
  const CLI::Option* option = app.get_option_no_throw(typed.substr(0, equals));
  return option == nullptr ? Candidates()
                           : values(value_name(*option), typed.substr(equals + 1), words, typed.substr(0, equals + 1));
}

}  // namespace

std::vector<std::string> complete(const std::vector<std::string>& words) {
  if (words.size() < 2) {
    const std::string typed = words.empty() ? "" : words[0];
    Candidates candidates = command_candidates(typed);
    if (!typed.empty()) {
      offer(candidates, typed, "--help", "Show this help");
      offer(candidates, typed, "--version", "Show the version");
    }
    return candidates;
  }
  const Command* command = find_command(words[0]);
  if (command == nullptr) return {};
  int unused = 0;
  const auto root = make_app(*command, unused);
  std::vector<std::string> rest(words.begin() + 1, words.end() - 1);
  const std::size_t before = rest.size();
  std::string path;
  try {
    const CLI::App& app = descend(*root, rest, path);
    return complete_verb(app, words, 1 + before - rest.size());
  } catch (const UsageError&) {
    return {};  // unknown verb
  }
}

}  // namespace adaptdl::cli
