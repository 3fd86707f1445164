#include "command/tune_search.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "adaptdl/error.h"
#include "local/run_client.h"
#include "local/run_directory.h"
#include "local/run_record.h"
#include "terminal/print.h"
#include "tune/space_text.h"
#include "tuner/local_trial_runner.h"
#include "tuner/search.h"

namespace adaptdl::cli {
namespace {

namespace tune = sched::tune;

constexpr int kSearchStopped = 128 + SIGTERM;
// How often results are looked for.
constexpr int kLookForResultsEvery = 50;  // ms

// Signals to stop, which are read instead of being delivered.
class StopFd {
 public:
  StopFd() {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, number);
    ::sigprocmask(SIG_BLOCK, &signals, &before_);
    fd_ = sched::Fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_) throw Error("cannot create a descriptor for signals");
  }
  ~StopFd() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  StopFd(const StopFd&) = delete;
  StopFd& operator=(const StopFd&) = delete;

  // Waits for a signal, or for the next look at the results. Returns whether one came.
  bool wait() {
    pollfd readable{fd_.get(), POLLIN, 0};
    if (::poll(&readable, 1, kLookForResultsEvery) != 1) return false;
    signalfd_siginfo info;
    return ::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info);
  }

 private:
  sigset_t before_{};
  sched::Fd fd_;
};

// The runs of a search that was killed save their checkpoints, and only then can their trials continue.
void wait_for_runs(const std::string& study) {
  for (const sched::RunEntry& run : sched::list_runs(sched::runs_directory())) {
    const std::string& name = run.status.name;
    const bool own =
        name.starts_with(study + "-") && name.find_first_not_of("0123456789", study.size() + 1) == std::string::npos;
    if (!own) continue;
    if (run.alive) print_notice("waiting for run {} of the previous search to stop", name);
    sched::wait_for_end(run);
    sched::remove_run(run, false);
  }
}

void print_best(const tune::Study& study, const std::string& metric) {
  const tune::Trial* const best = tune::best_trial(study);
  if (best == nullptr) return print_notice("no trial has a value of '{}'", metric);
  std::string text;
  for (const auto& [name, value] : best->parameters) text += fmt::format(" {}={}", name, tune::to_text(value));
  print_notice("best: trial {}, {} {:.6g}:{}", best->number, metric, best->values.front(), text);
}

}  // namespace

int search(const TunePlan& plan, tune::Journal& journal, const tune::StudyDirectory& directory) {
  const tune::StudySettings& settings = plan.settings;
  StopFd signals;
  wait_for_runs(plan.study);
  tune::LocalTrialRunner runner({.study = plan.study,
                                 .directory = directory.path(),
                                 .options = settings.run_options,
                                 .command = settings.command,
                                 .working_directory = settings.directory,
                                 .metric = settings.metric});
  const auto sampler = tune::make_sampler(settings.sampler, settings.seed);
  const auto pruner = tune::make_pruner(settings.pruner, {.factor = settings.factor});
  tune::SearchPlan search_plan{plan.study, settings.metric, settings.space, settings.trials, settings.parallel, {}};
  if (plan.time) search_plan.deadline = std::chrono::system_clock::now() + *plan.time;
  tune::Search search(std::move(search_plan), journal, *sampler, *pruner, runner,
                      [](std::string_view text) { print_notice("{}", text); });
  print_notice("study {}: {} trials of {}, up to {} at the same time; kept in {}", plan.study, settings.trials,
               settings.command.front(), settings.parallel, directory.path().string());
  int requests = 0;
  while (search.advance(std::chrono::system_clock::now())) {
    if (!signals.wait()) continue;
    if (++requests == 1) {
      print_notice("interrupted: waiting for the trials to save checkpoints (Ctrl-C kills them)");
      search.stop();
    } else {
      runner.kill();
    }
  }
  print_best(*journal.find(plan.study), settings.metric);
  if (search.finished()) return 0;
  print_notice("to continue: adaptdl tune --resume --study {}", plan.study);
  return kSearchStopped;
}

}  // namespace adaptdl::cli
