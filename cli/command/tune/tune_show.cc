#include "command/tune/tune_show.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "command/tune/tune_importance.h"
#include "command/tune/tune_study.h"
#include "terminal/dump_json.h"
#include "terminal/format.h"
#include "terminal/print.h"
#include "terminal/table.h"
#include "tune/journal/journal.h"
#include "tune/study/space_text.h"
#include "tuner/device_ledger.h"
#include "tuner/study_directory.h"
#include "tuner/study_settings.h"
#include "tuner/study_view.h"

namespace adaptdl::cli {
namespace {

namespace fs = std::filesystem;
namespace tune = sched::tune;
using nlohmann::json;

struct ShowOptions {
  std::string study, output;
  bool json = false;
};

}  // namespace

std::string state_text(const tune::Trial& trial) {
  if (tune::is_paused(trial)) return "paused";
  switch (trial.state) {
    case tune::TrialState::kRunning:
      return "running";
    case tune::TrialState::kComplete:
      return "complete";
    case tune::TrialState::kPruned:
      return "pruned";
    case tune::TrialState::kFailed:
      return "failed";
    case tune::TrialState::kWaiting:
      return "waiting";
  }
  return "unknown";
}

std::optional<double> value_of(const tune::Trial& trial) {
  return trial.values.empty() ? tune::last_value(trial) : trial.values.front();
}

std::string parameters_text(const tune::Trial& trial) {
  std::string text;
  for (const auto& [name, value] : trial.parameters) {
    const std::string shown =
        value.is_number_float() ? fmt::format("{:.4g}", value.get<double>()) : tune::to_text(value);
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, shown);
  }
  return text;
}

json trial_json(const tune::Study& study, const tune::Trial& trial) {
  const auto value = value_of(trial);
  json object{{"number", trial.number},
              {"state", state_text(trial)},
              {"parameters", trial.parameters},
              {"value", nullptr},
              {"step", nullptr},
              {"epoch", nullptr},
              {"rung", nullptr},
              {"device_seconds", tune::device_seconds(study, trial)},
              {"why", nullptr}};
  if (value) object["value"] = *value;
  if (!trial.intermediate.empty()) object["step"] = trial.intermediate.rbegin()->first;
  for (const auto& [key, attribute] : {std::pair("epoch", tune::kEpoch), {"rung", tune::kRung}, {"why", tune::kReason}})
    if (const auto found = trial.user_attributes.find(attribute); found != trial.user_attributes.end())
      object[key] = found->second;
  if (object["rung"] == tune::kLastRung) object["rung"] = nullptr;
  return object;
}

json count_states(const tune::Study& study) {
  json counts = json::object();
  for (const char* const state : {"complete", "pruned", "failed", "paused", "running", "waiting"}) counts[state] = 0;
  for (const tune::Trial& trial : study.trials) {
    json& count = counts[state_text(trial)];
    count = count.get<int>() + 1;
  }
  return counts;
}

namespace {

std::string attribute_text(const tune::Trial& trial, const char* key) {
  const auto found = trial.user_attributes.find(key);
  return found == trial.user_attributes.end() ? "-" : tune::to_text(found->second);
}

std::string device_hours_text(double device_seconds) { return device_seconds > 0 ? format_hours(device_seconds) : "-"; }

void show_study(const ShowOptions& options) {
  const OpenStudy open = open_study(options.study);
  if (options.json) {
    json trials = json::array();
    for (const tune::Trial& trial : open.study().trials) trials.push_back(trial_json(open.study(), trial));
    return print_text(dump_json(json{{"study", options.study}, {"metric", open.metric}, {"trials", trials}}) + '\n');
  }
  using Align = Table::Align;
  std::string metric = open.metric;
  std::ranges::transform(metric, metric.begin(), [](unsigned char c) { return std::toupper(c); });
  Table table({{"TRIAL", Align::kRight},
               {"STATE"},
               {metric, Align::kRight},
               {"EPOCH", Align::kRight},
               {"DEVICE-H", Align::kRight},
               {"PARAMETERS"},
               {"WHY"}});
  for (const tune::Trial& trial : open.study().trials) {
    const auto value = value_of(trial);
    table.add_row({std::to_string(trial.number), state_text(trial), value ? fmt::format("{:.6g}", *value) : "-",
                   attribute_text(trial, tune::kEpoch), device_hours_text(tune::device_seconds(open.study(), trial)),
                   parameters_text(trial), attribute_text(trial, tune::kReason)});
  }
  table.print();
}

const tune::Trial& best_of(const OpenStudy& open) {
  const tune::Trial* const best = tune::best_trial(open.study());
  if (best == nullptr) throw Error(fmt::format("study '{}' has no trial with a value yet", open.study().name));
  return *best;
}

// Copies the checkpoints to a directory, which must be empty or not exist.
void export_checkpoints(const OpenStudy& open, const tune::Trial& best, const fs::path& to) {
  if (open.study().user_attributes.contains(tune::kSettings) && tune::settings_of(open.study()).cluster)
    throw Error(
        fmt::format("the checkpoints of trial {0} are on its job's volume; copy them with `adaptdl cp "
                    "{1}-{0}:/adaptdl/checkpoint {2}`",
                    best.number, open.study().name, to.string()));
  const fs::path from = open.directory.path() / "trials" / std::to_string(best.number) / "checkpoints";
  std::error_code error;
  if (!fs::is_directory(from, error) || fs::is_empty(from, error))
    throw Error(fmt::format("trial {} has no checkpoint in '{}'", best.number, from.string()));
  if (fs::exists(to, error) && !(fs::is_directory(to, error) && fs::is_empty(to, error)))
    throw UsageError(fmt::format("tune best: '{}' already exists; choose another directory", to.string()));
  fs::create_directories(to, error);
  if (!error) fs::copy(from, to, fs::copy_options::recursive, error);
  if (error) throw Error(fmt::format("cannot copy '{}' to '{}': {}", from.string(), to.string(), error.message()));
  print_notice("checkpoints of trial {} are in '{}'", best.number, to.string());
}

void show_best(const ShowOptions& options) {
  const OpenStudy open = open_study(options.study);
  const tune::Trial& best = best_of(open);
  if (!options.output.empty()) export_checkpoints(open, best, options.output);
  if (options.json) return print_text(dump_json(trial_json(open.study(), best)) + '\n');
  print_out("trial {}: {} {:.6g}\n", best.number, open.metric, best.values.front());
  for (const auto& [name, value] : best.parameters) print_out("{} = {}\n", name, tune::to_text(value));
}

json study_json(const OpenStudy& open) {
  const json counts = count_states(open.study());
  const tune::Trial* const best = tune::best_trial(open.study());
  const int left = counts["paused"].get<int>() + counts["running"].get<int>() + counts["waiting"].get<int>();
  const char* const state = open.directory.searcher() ? "searching" : left > 0 ? "stopped" : "done";
  return {{"name", open.study().name},
          {"state", state},
          {"trials", counts},
          {"metric", open.metric},
          {"device_seconds", tune::device_seconds(open.study())},
          {"best", best == nullptr ? json() : json(best->values.front())}};
}

void list_all(const ShowOptions& options) {
  json studies = json::array();
  for (const std::string& name : tune::list_studies()) {
    try {
      studies.push_back(study_json(open_study(name)));
    } catch (const Error& error) {
      print_notice("{}", error.what());
    }
  }
  if (options.json) return print_text(dump_json(studies) + '\n');
  using Align = Table::Align;
  Table table({{"STUDY"},
               {"STATE"},
               {"COMPLETE", Align::kRight},
               {"PRUNED", Align::kRight},
               {"FAILED", Align::kRight},
               {"LEFT", Align::kRight},
               {"DEVICE-H", Align::kRight},
               {"METRIC"},
               {"BEST", Align::kRight}});
  for (const json& study : studies) {
    const json& trials = study["trials"];
    const int left = trials["paused"].get<int>() + trials["running"].get<int>() + trials["waiting"].get<int>();
    const json& best = study["best"];
    table.add_row({study["name"], study["state"], tune::to_text(trials["complete"]), tune::to_text(trials["pruned"]),
                   tune::to_text(trials["failed"]), std::to_string(left),
                   device_hours_text(study["device_seconds"].get<double>()), study["metric"],
                   best.is_null() ? "-" : fmt::format("{:.6g}", best.get<double>())});
  }
  table.print();
}

}  // namespace

void add_study_verbs(CLI::App& app) {
  add_study_changes(app);
  const auto add_verb = [&app](const char* name, const char* summary, void (*show)(const ShowOptions&)) {
    auto options = std::make_shared<ShowOptions>();
    CLI::App* const verb = app.add_subcommand(name, summary);
    verb->add_flag("--json", options->json, "Print JSON");
    verb->callback([options, show] { show(*options); });
    return std::pair(verb, options);
  };
  const auto add_study = [](CLI::App& verb, ShowOptions& options) {
    verb.add_option("study", options.study, "Name of the study")->required()->type_name("STUDY");
  };
  add_verb("ls", "List studies", list_all);
  const auto [show, show_options] = add_verb("show", "Show a study's trials", show_study);
  add_study(*show, *show_options);
  const auto [best, best_options] = add_verb("best", "Show the best trial's parameters", show_best);
  add_study(*best, *best_options);
  best->add_option("--export", best_options->output, "Copy the trial's checkpoints to this directory")
      ->type_name("DIR");
  add_study_importance(app);
}

}  // namespace adaptdl::cli
