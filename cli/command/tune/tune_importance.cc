#include "command/tune/tune_importance.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command/tune/tune_study.h"
#include "terminal/dump_json.h"
#include "terminal/print.h"
#include "terminal/table.h"
#include "tune/sampler/importance.h"
#include "tuner/study_view.h"

namespace adaptdl::cli {
namespace {

namespace tune = sched::tune;

struct ImportanceOptions {
  std::string study;
  bool json = false;
};

void show_importance(const ImportanceOptions& options) {
  const OpenStudy open = open_study(options.study);
  const tune::Importances found = tune::parameter_importances(tune::sampled_view(open.study()));
  if (options.json) {
    nlohmann::json parameters = nlohmann::json::array();
    for (const auto& [name, fraction] : found.parameters)
      parameters.push_back({{"name", name}, {"importance", fraction}});
    return print_text(dump_json(nlohmann::json{{"study", options.study},
                                               {"metric", open.metric},
                                               {"trials", found.trials},
                                               {"best_trials", found.best},
                                               {"parameters", parameters}}) +
                      '\n');
  }
  Table table({{"PARAMETER"}, {"IMPORTANCE", Table::Align::kRight}});
  for (const auto& [name, fraction] : found.parameters) table.add_row({name, fmt::format("{:.3f}", fraction)});
  table.print();
}

}  // namespace

void add_study_importance(CLI::App& app) {
  auto options = std::make_shared<ImportanceOptions>();
  CLI::App* const verb =
      app.add_subcommand("importance", "Show which of a study's parameters matter for a good result");
  verb->add_option("study", options->study, "Name of the study")->required()->type_name("STUDY");
  verb->add_flag("--json", options->json, "Print JSON");
  verb->footer(
      "The importances add up to 1. The method, PED-ANOVA, compares a parameter's values in the best tenth of the\n"
      "trials with its values in all trials. At least 10 trials are required, and 50 or more are recommended.");
  verb->callback([options] { show_importance(*options); });
}

}  // namespace adaptdl::cli
