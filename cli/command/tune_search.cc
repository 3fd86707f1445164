#include "command/tune_search.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "adaptdl/error.h"
#include "command/tune_sampler.h"
#include "local/run_record.h"
#include "terminal/format.h"
#include "terminal/print.h"
#include "tune/space_text.h"
#include "tuner/device_ledger.h"
#include "tuner/local_trial_runner.h"
#include "tuner/search.h"

namespace adaptdl::cli {
namespace {

namespace tune = sched::tune;

constexpr int kSearchStopped = 128 + SIGTERM;
constexpr int kNoResult = 1;
// How often results are looked for.
constexpr int kLookForResultsEvery = 50;  // ms

// Signals to stop, which are read instead of being delivered.
class StopFd {
 public:
  StopFd() {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int number : {SIGINT, SIGTERM}) ::sigaddset(&signals, number);
    struct sigaction hangup {};
    // As under nohup(1).
    if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) ::sigaddset(&signals, SIGHUP);
    ::sigprocmask(SIG_BLOCK, &signals, &before_);
    fd_ = sched::Fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_) throw Error("cannot create a descriptor for signals");
  }
  ~StopFd() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  StopFd(const StopFd&) = delete;
  StopFd& operator=(const StopFd&) = delete;

  // Waits for a signal, for so many milliseconds. Returns its number; 0: none came.
  int wait(int limit = kLookForResultsEvery) {
    pollfd readable{fd_.get(), POLLIN, 0};
    if (::poll(&readable, 1, limit) != 1) return 0;
    signalfd_siginfo info;
    const bool complete = ::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info);
    return complete ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  sched::Fd fd_;
};

// The runs of a search that was killed save their checkpoints, and only then can their trials continue. Returns whether
// all of them have; otherwise a signal came.
bool adopt_previous_runs(const TunePlan& plan, const tune::Study& study, tune::LocalTrialRunner& runner,
                         StopFd& signals) {
  for (const sched::RunEntry& run : runner.previous_runs(plan.settings.trials)) {
    if (run.alive) print_notice("waiting for run {} of the previous search to stop", run.status.name);
    while (sched::is_alive(run))
      if (signals.wait() != 0) return false;
    runner.adopt(run, study.trials.size());
  }
  return true;
}

// Has the trials save checkpoints after the search has failed.
void stop_trials(tune::LocalTrialRunner& runner, StopFd& signals) {
  if (!runner.any_left()) return;
  print_notice("the search failed: waiting for the trials to save checkpoints (Ctrl-C kills them)");
  runner.stop_all();
  while (runner.any_left())
    if (signals.wait() == SIGINT) runner.kill();
}

void search_to_end(tune::Search& search, tune::LocalTrialRunner& runner, StopFd& signals) {
  bool stopping = false;
  while (search.advance(std::chrono::system_clock::now())) {
    const int number = signals.wait(runner.has_more() ? 0 : kLookForResultsEvery);
    if (number == 0) continue;
    if (!std::exchange(stopping, true)) {
      print_notice("interrupted: waiting for the trials to save checkpoints (Ctrl-C kills them)");
      search.stop();
    } else if (number == SIGINT) {
      print_notice("interrupted again: killing the trials");
      runner.kill();
    }
  }
  runner.forget_ended();
}

void print_best(const tune::Study& study, const std::string& metric) {
  const tune::Trial* const best = tune::best_trial(study);
  if (best == nullptr) return print_notice("no trial has a value of '{}'", metric);
  print_notice("best: trial {}, {} {:.6g}: {}", best->number, metric, best->values.front(),
               tune::to_text(best->parameters));
}

// Of a study that has reached its limit.
std::string used_up_text(const TunePlan& plan, double device_seconds) {
  return fmt::format("study '{}' has used {} of its {:g} device-hours", plan.study, format_hours(device_seconds),
                     plan.settings.gpu_hours);
}

[[noreturn]] void refuse_used_up(const TunePlan& plan, double device_seconds) {
  throw UsageError(fmt::format("tune: {}; raise --gpu-hours", used_up_text(plan, device_seconds)));
}

}  // namespace

void check_device_hours(const TunePlan& plan, const tune::Study& study) {
  const auto limit = tune::max_device_seconds(plan.settings);
  const double used = tune::device_seconds(study);
  const bool is_done = static_cast<int>(study.trials.size()) >= plan.settings.trials &&
                       std::ranges::all_of(study.trials, [](const auto& each) { return is_finished(each.state); });
  if (limit && used >= *limit && !is_done) refuse_used_up(plan, used);
}

int search(const TunePlan& plan, tune::Journal& journal, const tune::StudyDirectory& directory) {
  const tune::StudySettings& settings = plan.settings;
  // A reader of the notices that went away does not end the search.
  ::signal(SIGPIPE, SIG_IGN);
  StopFd signals;
  const auto notice = [](std::string_view text) { print_notice("{}", text); };
  tune::LocalTrialRunner runner({.study = plan.study,
                                 .directory = directory.path(),
                                 .options = tune::run_options(settings),
                                 .command = settings.command,
                                 .working_directory = settings.directory,
                                 .metric = settings.metric,
                                 .notice = notice});
  const auto stopped = [&] {
    print_notice("to continue: adaptdl tune --resume --study {}", plan.study);
    return kSearchStopped;
  };
  if (!adopt_previous_runs(plan, *journal.find(plan.study), runner, signals)) return stopped();
  const auto sampler = make_study_sampler(settings, plan.study, directory.journal());
  const auto pruner = tune::make_pruner(settings.pruner, {.factor = settings.factor});
  tune::SearchPlan search_plan{plan.study, settings.metric, settings.space, settings.trials, settings.parallel, {}};
  search_plan.share = {*tune::find_share_mode(settings.share), plan.devices, settings.min_replicas,
                       settings.max_replicas};
  search_plan.max_device_seconds = tune::max_device_seconds(settings);
  if (plan.time) search_plan.deadline = std::chrono::system_clock::now() + *plan.time;
  tune::Search search(std::move(search_plan), journal, *sampler, *pruner, runner,
                      [&settings](const tune::SearchEvent& event) {
                        const std::string text = tune::to_text(event, settings.metric);
                        if (!text.empty()) print_notice("{}", text);
                      });
  print_notice("study {}: {} trials of {}, up to {} at the same time; kept in {}", plan.study, settings.trials,
               settings.command.front(), settings.parallel, directory.path().string());
  try {
    search_to_end(search, runner, signals);
  } catch (const std::exception&) {
    stop_trials(runner, signals);
    throw;
  }
  const tune::Study& study = *journal.find(plan.study);
  print_best(study, settings.metric);
  print_notice("device-hours: {}", format_hours(search.device_seconds()));
  if (!search.finished() && search.used_up()) {
    if (!search.started()) refuse_used_up(plan, search.device_seconds());
    print_notice("{}; to continue: adaptdl tune --resume --study {} --gpu-hours MORE",
                 used_up_text(plan, search.device_seconds()), plan.study);
    return kSearchStopped;
  }
  if (!search.finished()) return stopped();
  return tune::best_trial(study) == nullptr ? kNoResult : 0;
}

}  // namespace adaptdl::cli
