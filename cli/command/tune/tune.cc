#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "base/fd.h"
#include "command/base/command.h"
#include "command/base/suggest.h"
#include "command/tune/tune_cluster.h"
#include "command/tune/tune_plan.h"
#include "command/tune/tune_search.h"
#include "command/tune/tune_show.h"
#include "command/tune/tune_study.h"
#include "terminal/print.h"
#include "tune/journal/journal.h"
#include "tuner/study_directory.h"

namespace adaptdl::cli {
namespace {

namespace tune = sched::tune;

// Checks the name of a study, which is also the name of a directory and part of the names of its runs.
void check_study_name(const std::string& name) {
  constexpr std::size_t kMaxName = 50;
  if (name.empty() || name.size() > kMaxName || name.front() == '.' || name != plain_name(name))
    throw UsageError(
        fmt::format("tune: invalid study name '{}': expected up to {} letters, digits, '.', '_' and '-', not beginning "
                    "with '.'",
                    name, kMaxName));
}

int resume(const TuneOptions& options) {
  if (options.study.empty()) throw UsageError("tune: --resume requires --study NAME (see `adaptdl tune ls`)");
  OpenStudy open = open_study(options.study);
  open.directory.lock();
  open.journal->refresh();
  const tune::StudySettings before = tune::settings_of(open.study());
  std::error_code error;
  // The program is also looked up relative to this directory.
  if (!before.cluster) std::filesystem::current_path(before.directory, error);
  if (error)
    throw UsageError(fmt::format("tune: cannot enter the working directory '{}' of study '{}': {}",
                                 before.directory.string(), options.study, error.message()));
  const TunePlan plan = make_plan(options, open.study(), this_machine());
  if (options.dry_run) {
    check_device_hours(plan, open.study());
    print_notice("study '{}' can continue; nothing was started", options.study);
    return 0;
  }
  if (const auto changed = tune::to_json(plan.settings); changed != tune::to_json(before))
    open.journal->set_study_attribute(open.study().id, tune::kSettings, changed);
  return search(plan, *open.journal, open.directory);
}

bool has_trials(const tune::StudyDirectory& directory) {
  std::error_code ignored;
  return std::filesystem::exists(directory.path() / "trials", ignored);
}

// Returns whether the study's search has begun. A study that was interrupted before its search began can be replaced.
bool has_begun(const tune::StudyDirectory& directory) {
  // A trial of a new study would continue from the checkpoint of an old study's trial.
  if (has_trials(directory)) return true;
  if (!directory.exists()) return false;
  const tune::Journal journal(directory.journal(), {.create = false});
  const tune::Study* const study = journal.find(directory.name());
  return study != nullptr && (study->user_attributes.contains(tune::kSettings) || !study->trials.empty());
}

void check_is_new(const tune::StudyDirectory& directory) {
  if (has_begun(directory))
    throw UsageError(
        fmt::format("tune: study '{0}' already exists; continue it with `adaptdl tune --resume --study {0}`, or "
                    "choose another name with --study",
                    directory.name()));
}

// Runs the search of a locked study. Leaves nothing behind if it fails before the first trial.
int begin_locked(const TunePlan& plan, const std::string& storage, tune::StudyDirectory& directory) {
  try {
    directory.place_journal(storage.empty() ? std::nullopt : std::optional<std::filesystem::path>(storage));
    tune::Journal journal(directory.journal());
    journal.create_study(plan.study, plan.direction, plan.settings.metric,
                         {{tune::kSettings, tune::to_json(plan.settings)}});
    return search(plan, journal, directory);
  } catch (const std::exception&) {
    if (!has_trials(directory)) directory.remove();
    throw;
  }
}

int begin(TuneOptions options) {
  const bool is_named = !options.study.empty();
  if (!is_named && !options.program.empty()) options.study = plain_name(options.program.front()).substr(0, 50);
  if (options.cluster && !is_named) options.study = job_study_name(options.study);
  const TunePlan plan = make_plan(options, this_machine());
  check_study_name(plan.study);
  tune::StudyDirectory directory(plan.study);
  check_is_new(directory);
  if (plan.settings.cluster) check_cluster(plan, *cluster_client(plan));
  if (options.dry_run) {
    print_notice("the options are valid; nothing was started");
    return 0;
  }
  directory.create();
  directory.lock();
  check_is_new(directory);
  return begin_locked(plan, options.storage, directory);
}

// A search requires options, so a first word without options may be a mistyped verb.
void check_is_no_verb(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining();
  if (words.empty() || words.front() == "--") return;
  for (const CLI::Option* const option : app.get_options())
    if (option->count() > 0) return;
  std::vector<std::string> verbs;
  for (const CLI::App* const verb : app.get_subcommands([](const CLI::App*) { return true; }))
    verbs.push_back(verb->get_name());
  if (const auto verb = closest(words.front(), verbs))
    throw UsageError(fmt::format("tune: no such verb: '{}'; did you mean '{}'?", words.front(), *verb));
}

void add_study_options(CLI::App& app, TuneOptions& options) {
  app.add_option("--study", options.study, "Name of the study (default: the program's name)")->type_name("NAME");
  app.add_option("-P,--param", options.parameters,
                 "Parameter and its values: LOW..HIGH[:STEP], log:LOW..HIGH, A|B|C, or a single value for all trials; "
                 "may be given several times")
      ->type_name("NAME=VALUES")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--space", options.space, "YAML file with parameters and their conditions")->type_name("FILE");
  app.add_option("--metric", options.metric, "Metric that the program reports, and whether to maximize or minimize it")
      ->type_name("NAME:max|min");
}

// Adds the options that determine how many trials there are, how they share the devices, and how long the search takes.
void add_budget_options(CLI::App& app, TuneOptions& options) {
  app.add_option("--trials", options.trials, "Number of trials (default: 64)")->type_name("N");
  app.add_option(
         "--parallel", options.parallel,
         "Number of trials to run at the same time (default: auto, the number of devices divided by --min-replicas; "
         "with --cluster, 8)")
      ->type_name("N|auto");
  app.add_option("--share", options.share,
                 "How to divide the devices among trials: by gain in goodput, by that gain weighted by the trial's "
                 "probability of becoming the best, or equally (default: goodput)")
      ->type_name("goodput|promise|equal");
  app.add_option("--time", options.time, "Save checkpoints and stop the search after this time (default: no limit)")
      ->type_name("DURATION");
  app.add_option("--gpu-hours", options.gpu_hours,
                 "Save checkpoints and stop the search after this many device-hours (default: no limit)")
      ->type_name("H");
}

// Adds the options for the sampler and the pruner.
void add_method_options(CLI::App& app, TuneOptions& options) {
  app.add_option("--sampler", options.sampler,
                 "Method for choosing new trials' parameters; NAME is a class in optuna.samplers (default: tpe)")
      ->type_name("tpe|random|grid|qmc|optuna:NAME");
  app.add_option("--pruner", options.pruner, "Method for choosing which trials to stop early (default: asha)")
      ->type_name("asha|hyperband|median|none");
  app.add_option("--factor", options.factor,
                 "With asha and hyperband: one in N trials continues past each rung (default: 4)")
      ->type_name("N");
  app.add_option("--seed", options.seed, "Sampler's seed (default: a random seed)")->type_name("N");
}

// Adds the options for each trial's run.
void add_trial_options(CLI::App& app, TuneOptions& options) {
  app.add_option("--min-replicas", options.min_replicas,
                 "Minimum number of replicas per trial (default: 1; with --cluster, the job file's)")
      ->type_name("N");
  app.add_option("--max-replicas", options.max_replicas,
                 "Maximum number of replicas per trial (default: the number of devices; with --cluster, the job "
                 "file's)")
      ->type_name("N");
  app.add_option("--devices", options.devices, "Devices to use, such as 0,2,3 (see `adaptdl run`)")->type_name("LIST");
  app.add_option("--device-kind", options.device_kind, "Kind of devices: gpu or cpu (see `adaptdl run`)")
      ->type_name("gpu|cpu");
  app.add_option(
         "--checkpoint-every", options.checkpoint_every,
         "Time between checkpoints, such as 90s or 1.5h; 0 to save only when the trial is asked to stop (default: 5m)")
      ->type_name("DURATION");
}

// Adds the options for trials that are cluster jobs.
void add_trial_job_options(CLI::App& app, TuneOptions& options) {
  app.add_flag("--cluster", options.cluster, "Run the trials as AdaptDLJobs in a cluster with the operator");
  app.add_option(
         "--jobfile", options.job_file,
         "With --cluster: file with the AdaptDLJob for a trial, in which the program replaces the first container's "
         "command (default: adaptdljob.yaml)")
      ->type_name("FILE");
  app.add_option("--image", options.image, "With --cluster: image of the first container (default: the job file's)")
      ->type_name("IMAGE");
  app.add_option("--checkpoint-storage-size", options.storage_size,
                 "With --cluster: size of each trial's volume (default: 1Gi)")
      ->type_name("QUANTITY");
  app.add_option("--checkpoint-storage-class", options.storage_class,
                 "With --cluster: storage class of each trial's volume (see `adaptdl submit`)")
      ->type_name("NAME");
  app.add_option("--namespace", options.cluster_options.name_space,
                 "With --cluster: namespace in the cluster (default: the job file's or, if it has none, the context's)")
      ->type_name("NAMESPACE");
  app.add_option("--context", options.cluster_options.context,
                 "With --cluster: context from the kubeconfig (default: the current one)")
      ->type_name("NAME");
}

}  // namespace

void add_tune(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<TuneOptions>();
  // The verbs are added before prefix_command(), so that they do not inherit it.
  add_study_verbs(app);
  app.prefix_command();
  add_study_options(app, *options);
  add_budget_options(app, *options);
  add_method_options(app, *options);
  add_trial_options(app, *options);
  add_trial_job_options(app, *options);
  app.add_option("--storage", options->storage,
                 "File to store the study in, readable by Optuna (default: journal.log in the study's "
                 "directory)")
      ->type_name("FILE");
  app.add_flag("--resume", options->resume, "Continue the study named by --study");
  app.add_flag(
      "--json", options->json,
      "Print one JSON object per event, each on its own line, instead of the table and the lines about trials");
  app.add_flag("--dry-run", options->dry_run, "Check everything, but start nothing");
  app.footer(
      "The program receives each parameter in three ways: in its arguments, in place of {NAME}; in the environment\n"
      "variable ADAPTDL_PARAM_NAME, such as ADAPTDL_PARAM_LR; and in the JSON file $ADAPTDL_PARAMS_FILE. It reports\n"
      "the metric with adaptdl::report(), as a line of JSON on standard output, or as a scalar in TensorBoard events\n"
      "below $ADAPTDL_TENSORBOARD_LOGDIR.");
  app.callback([&app, &exit_code, options] {
    check_is_no_verb(app);
    open_standard_descriptors();
    options->program = app.remaining();
    if (!options->program.empty() && options->program.front() == "--") options->program.erase(options->program.begin());
    exit_code = options->resume ? resume(*options) : begin(*options);
  });
}

}  // namespace adaptdl::cli
