#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <set>

#include "base/counted.h"
#include "base/fd.h"
#include "command/base/command.h"
#include "command/base/help_text.h"
#include "command/run/run_detach.h"
#include "command/run/run_plan.h"
#include "command/run/run_registration.h"
#include "local/base/checkpoint_watch.h"
#include "local/launch/launch_signals.h"
#include "local/launch/launcher.h"
#include "terminal/terminal.h"
#include "view/notice_log.h"
#include "view/run_screen.h"
#include "view/run_summary.h"

namespace adaptdl::cli {
namespace {

namespace fs = std::filesystem;

// Returns the command that resumes from `checkpoints`: the given command with --checkpoint. The command contains only
// the names of the variables in --env, because their values may be secrets, and the command is shown and stored.
std::string resume_command(const CLI::App& app, const RunOptions& options, const fs::path& checkpoints) {
  std::vector<std::string> words = {program_invocation_name, "run", "--checkpoint", checkpoints.string()};
  for (const CLI::Option* option : visible_options(app)) {
    const std::string name = option_words(*option).back();
    if (name == "--checkpoint" || value_name(*option).empty()) continue;
    std::set<std::string> names;
    for (const std::string& value : option->reduced_results()) {
      const std::string shown = name == "--env" ? value.substr(0, value.find('=')) : value;
      if (name != "--env" || names.insert(shown).second) words.insert(words.end(), {name, shown});
    }
  }
  if (options.detach) words.emplace_back("--detach");
  words.emplace_back("--");
  words.insert(words.end(), options.program.begin(), options.program.end());
  return shell_command(words);
}

std::string opening(const sched::LaunchPlan& plan) {
  const std::string lower_bound = plan.min_replicas < plan.replicas ? fmt::format("{} to ", plan.min_replicas) : "";
  std::string text =
      fmt::format("{}{} of '{}'", lower_bound, counted(plan.replicas, "replica"), plan.arguments.front());
  if (plan.nodes > 1) text += fmt::format(" on machine {} of {}", plan.node_rank, plan.nodes);
  if (!plan.checkpoints) return text + ", without checkpoints";
  const auto newest = sched::CheckpointWatch(plan.checkpoints).newest();
  if (newest) return text + fmt::format(", continuing from '{}'", newest->path.string());
  return text + fmt::format(", checkpoints in '{}'", plan.checkpoints->string());
}

// Runs the plan in the foreground.
int run_on_terminal(const sched::LaunchPlan& plan, RunSummary about, RunRegistration& registration) {
  // If the reader of the output exits, writes fail, and the run saves a checkpoint and stops.
  ::signal(SIGPIPE, SIG_IGN);
  RunScreen screen(plan.nodes * plan.replicas);
  if (!registration.warning().empty()) screen.notice(registration.warning());
  screen.notice(opening(plan));
  try {
    const sched::LaunchResult result = sched::launch(plan, screen, registration.control());
    about.colour = use_colour(STDERR_FILENO);
    screen.print(run_summary(result, about) + registration.ended(result));
    screen.close();
    return result.outcome.exit_code;
  } catch (...) {
    screen.close();
    throw;
  }
}

// The observer of a detached run, which logs notices and reports the start.
class DetachedObserver : public NoticeLog {
 public:
  DetachedObserver(const RunRegistration& registration, StartReport& report)
      : NoticeLog(registration.notices()), registration_(registration), report_(report) {}
  void started() override { report_.started(registration_.name()); }

 private:
  const RunRegistration& registration_;
  StartReport& report_;
};

int run_in_background(const sched::LaunchPlan& plan, const RunSummary& about, RunRegistration& registration,
                      StartReport& report) {
  DetachedObserver log(registration, report);
  log.notice(opening(plan));
  const sched::LaunchResult result = sched::launch(plan, log, registration.control());
  log.print(run_summary(result, about) + registration.ended(result));
  return result.outcome.exit_code;
}

int run(const CLI::App& app, const RunOptions& options, StartReport* report) {
  open_standard_descriptors();
  sched::LaunchPlan plan = make_plan(options, this_machine());
  sched::hold_stop_signals();
  RunRegistration registration(options, plan);
  RunSummary about{.checkpoints = plan.checkpoints, .resume = "", .colour = false};
  if (plan.checkpoints) about.resume = resume_command(app, options, *plan.checkpoints);
  registration.set_resume(about.resume);
  try {
    return report == nullptr ? run_on_terminal(plan, about, registration)
                             : run_in_background(plan, about, registration, *report);
  } catch (const std::exception& error) {
    registration.failed(error.what());
    throw;
  }
}

// Adds the options for the replicas and their devices.
void add_replica_options(CLI::App& app, RunOptions& options) {
  app.add_option(
         "-n,--replicas", options.replicas,
         "Number of replicas on this machine, or the minimum and maximum of an elastic run; auto is one per device, "
         "but 1 without GPUs unless --devices or --device-kind is given (default: auto)")
      ->type_name("N|MIN:MAX|auto");
  app.add_option("--start-replicas", options.start_replicas,
                 "With MIN:MAX: initial number of replicas, kept until step times have been measured or the program is "
                 "known to adapt to changes (default: one per available device, up to MAX)")
      ->type_name("N");
  app.add_option(
         "--devices", options.devices,
         "Devices to use, such as 0,2,3, or the number of CPU devices (default: all GPUs, or one CPU device per core)")
      ->type_name("LIST");
  app.add_option("--device-kind", options.device_kind,
                 "Kind of devices: gpu, or cpu to try things out without GPUs (default: gpu if there are any)")
      ->type_name("gpu|cpu");
  app.add_option("--fairness", options.fairness,
                 "Fairness exponent of the runs that share the devices, set by the first of them; more negative is "
                 "fairer (default: -1)")
      ->type_name("P");
}

void add_checkpoint_options(CLI::App& app, RunOptions& options) {
  app.add_option("--checkpoint", options.checkpoint,
                 "Checkpoint directory to continue from and save to (default: the run's own, removed when the run "
                 "succeeds)")
      ->type_name("DIR");
  app.add_flag("--no-checkpoint", options.no_checkpoint, "Save no checkpoints, and start from the beginning");
  app.add_option(
         "--checkpoint-every", options.checkpoint_every,
         "Time between checkpoints, such as 90s or 1.5h; 0 to save only when the run is asked to stop (default: 5m)")
      ->type_name("DURATION");
  app.add_option("--checkpoint-keep", options.checkpoint_keep, "Keep the newest N checkpoints (default: 2)")
      ->type_name("N");
}

// Adds the options for the replicas' environment and for the run as a whole.
void add_environment_options(CLI::App& app, RunOptions& options) {
  app.add_option("--share", options.share, "Directory shared by all replicas, for data sets and artifacts")
      ->type_name("DIR");
  app.add_option("--backend", options.backend, "Communication backend (default: nccl with GPUs, gloo without)")
      ->type_name("gloo|nccl");
  app.add_option("--env", options.environment,
                 "Environment variable for the replicas; without VALUE, the caller's value; may be given several times")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--name", options.name,
                 "Name of the run and its job, as in `adaptdl ls` (default: the program's name and the time)")
      ->type_name("NAME");
  app.add_flag("--detach", options.detach,
               "Print the run's name and return once the replicas have started; the run continues without the "
               "terminal");
}

// Adds the options for runs on several machines.
void add_machine_options(CLI::App& app, RunOptions& options) {
  app.add_option("--nodes", options.nodes, "Number of machines; run the same command on each of them (default: 1)")
      ->type_name("N");
  app.add_option("--node-rank", options.node_rank, "Rank of this machine, from 0; required with --nodes")
      ->type_name("N");
  app.add_option("--master", options.master,
                 "Address at which all machines can reach machine 0 (default: a free port on this machine; required "
                 "with --nodes)")
      ->type_name("HOST:PORT");
  app.add_option("--token-file", options.token_file,
                 "With --nodes: file with the job's token, the same on all machines; replicas without it cannot join")
      ->type_name("FILE");
}

// Adds the options that determine how a run survives failures, how it stops, and where its output is.
void add_failure_options(CLI::App& app, RunOptions& options) {
  app.add_option(
         "--max-restarts", options.max_restarts,
         "Number of failures to survive; after a failure, the run restarts from the newest checkpoint unless the "
         "other replicas can continue (default: 0, or 3 for an elastic run)")
      ->type_name("N");
  app.add_option("--hang-timeout", options.hang_timeout,
                 "Time to wait for a replica that does not respond before the others continue without it; must be "
                 "longer than the slowest step (default: 30m)")
      ->type_name("DURATION");
  app.add_option("--grace", options.grace,
                 "Time for replicas to save a checkpoint when asked to stop, before they are killed (default: 30s)")
      ->type_name("DURATION");
  app.add_option("--logs", options.logs,
                 "Directory for each replica's output, as rank-<R>.log (default: the run's own)")
      ->type_name("DIR");
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<RunOptions>();
  app.prefix_command();
  add_replica_options(app, *options);
  add_checkpoint_options(app, *options);
  add_environment_options(app, *options);
  add_machine_options(app, *options);
  add_failure_options(app, *options);
  app.footer(
      "Ctrl-C saves a checkpoint and prints how to continue; a second Ctrl-C kills the replicas.\n"
      "`adaptdl ls` lists runs, and `adaptdl logs` shows their output.");
  app.callback([&app, &exit_code, options] {
    options->program = app.remaining();
    if (!options->program.empty() && options->program.front() == "--") options->program.erase(options->program.begin());
    exit_code = options->detach ? run_detached([&](StartReport& report) { return run(app, *options, &report); })
                                : run(app, *options, nullptr);
  });
}

}  // namespace adaptdl::cli
