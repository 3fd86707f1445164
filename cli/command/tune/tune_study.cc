#include "command/tune/tune_study.h"

#include <fmt/format.h>
#include <signal.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "adaptdl/error.h"
#include "command/base/numbers.h"
#include "terminal/print.h"
#include "tune/study/space_text.h"
#include "tuner/study_settings.h"
#include "tuner/study_view.h"

namespace adaptdl::cli {
namespace {

namespace tune = sched::tune;

constexpr auto kLookForEndEvery = std::chrono::milliseconds(50);

struct StudyOptions {
  std::string study, trial;
  std::vector<std::string> values;  // NAME=VALUE
};

// Ends the study's search; the trials save checkpoints.
void stop_search(const OpenStudy& open) {
  const std::string& name = open.directory.name();
  const auto searcher = open.directory.searcher();
  if (!searcher) throw Error(fmt::format("no search of study '{}' is running", name));
  ::kill(*searcher, SIGTERM);
  while (open.directory.searcher() == searcher) std::this_thread::sleep_for(kLookForEndEvery);
  print_out("stopped {}; to continue: adaptdl tune --resume --study {}\n", name, name);
}

// Prunes a trial that has not ended, even if it is not running.
void stop_trial(const OpenStudy& open, const std::string& text) {
  const auto& trials = open.study().trials;
  if (trials.empty()) throw Error(fmt::format("study '{}' has no trials", open.study().name));
  const int number =
      parse_number(text, "tune stop: TRIAL", 0, static_cast<int>(trials.size()) - 1, "the number of a trial");
  const tune::Trial& trial = trials[static_cast<std::size_t>(number)];
  if (tune::is_finished(trial.state)) throw Error(fmt::format("trial {} has already ended", number));
  const int id = trial.id;
  auto value = tune::last_value(trial);
  if (value && std::isnan(*value)) value.reset();
  open.journal->begin();
  open.journal->set_trial_attribute(id, tune::kReason, "stopped by `adaptdl tune stop`");
  const bool stopped = open.journal->finish(id, tune::TrialState::kPruned, value);
  open.journal->commit();
  if (!stopped) throw Error(fmt::format("trial {} has already ended", number));
  print_out("stopped trial {}\n", number);
}

void stop(const StudyOptions& options) {
  const OpenStudy open = open_study(options.study);
  if (options.trial.empty())
    stop_search(open);
  else
    stop_trial(open, options.trial);
}

void enqueue(const StudyOptions& options) {
  const OpenStudy open = open_study(options.study);
  const tune::StudySettings settings = tune::settings_of(open.study());
  nlohmann::json given = nlohmann::json::object();
  for (const std::string& text : options.values) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) throw UsageError(fmt::format("tune enqueue: expected NAME=VALUE, not '{}'", text));
    const std::string name = text.substr(0, equals);
    const tune::Parameter* const parameter = settings.space.find(name);
    if (parameter == nullptr)
      throw UsageError(fmt::format("tune enqueue: study '{}' has no parameter '{}'", options.study, name));
    given[name] = tune::parse_value(name, parameter->distribution, text.substr(equals + 1));
  }
  const int id =
      open.journal->create_trial(open.study().id, tune::TrialState::kWaiting, {{"fixed_params", std::move(given)}});
  print_out("enqueued trial {}\n", open.journal->trial(id)->number);
}

}  // namespace

const tune::Study& OpenStudy::study() const {
  const tune::Study* const found = journal->find(directory.name());
  if (found == nullptr)
    throw Error(fmt::format("study '{}' not found in '{}'", directory.name(), directory.journal().string()));
  return *found;
}

OpenStudy open_study(const std::string& name) {
  OpenStudy open{tune::StudyDirectory(name), nullptr, "value"};
  if (name.empty() || name.find('/') != std::string::npos || !open.directory.exists())
    throw UsageError(fmt::format("tune: study '{}' not found (see `adaptdl tune ls`)", name));
  open.journal = std::make_unique<tune::Journal>(open.directory.journal(), tune::JournalOptions{.create = false});
  const tune::Study& study = open.study();
  if (study.user_attributes.contains(tune::kSettings)) open.metric = tune::settings_of(study).metric;
  return open;
}

void add_study_changes(CLI::App& app) {
  auto options = std::make_shared<StudyOptions>();
  const auto add_verb = [&](const char* name, const char* summary) {
    CLI::App* const verb = app.add_subcommand(name, summary);
    verb->add_option("study", options->study, "Name of the study")->required()->type_name("STUDY");
    return verb;
  };
  CLI::App* const stopping = add_verb("stop", "Save checkpoints and stop a study's search, or prune one trial");
  stopping->add_option("trial", options->trial, "Number of the trial to prune")->type_name("TRIAL");
  stopping->callback([options] { stop(*options); });
  CLI::App* const queueing = add_verb("enqueue", "Add a trial with these parameters, to run next");
  queueing->add_option("values", options->values, "Parameter values; the sampler chooses the other parameters")
      ->required()
      ->type_name("NAME=VALUE");
  queueing->callback([options] { enqueue(*options); });
}

}  // namespace adaptdl::cli
