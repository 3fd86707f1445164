#include "command/tune/tune_search.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "adaptdl/error.h"
#include "command/tune/search_report.h"
#include "command/tune/tune_cluster.h"
#include "command/tune/tune_sampler.h"
#include "local/record/run_record.h"
#include "terminal/format.h"
#include "tuner/device_ledger.h"
#include "tuner/local_trial_runner.h"
#include "tuner/python_helper.h"
#include "tuner/search.h"
#include "tuner/study_view.h"

namespace adaptdl::cli {
namespace {

namespace tune = sched::tune;

constexpr int kSearchStopped = 128 + SIGTERM;
constexpr int kNoResult = 1;  // no trial has a value, or the search failed
constexpr int kUsageExit = 2;
constexpr int kLookForResultsEvery = 50;  // ms between polls for results
constexpr int kMaxSettleTries = 40;       // maximum number of polls while trials on this machine settle

// Blocks and reads the stop signals and the signal that continues the process after Ctrl-Z.
class SearchSignals {
 public:
  SearchSignals() {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int number : {SIGINT, SIGTERM, SIGCONT}) ::sigaddset(&signals, number);
    struct sigaction hangup {};
    // An ignored SIGHUP stays ignored, as nohup(1) expects.
    if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) ::sigaddset(&signals, SIGHUP);
    ::sigprocmask(SIG_BLOCK, &signals, &before_);
    fd_ = Fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_) throw Error(fmt::format("cannot create a signal file descriptor: {}", std::strerror(errno)));
  }
  // Discards late signals, because the search has already ended.
  ~SearchSignals() {
    signalfd_siginfo info;
    while (::read(fd_.get(), &info, sizeof info) > 0) {
    }
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  SearchSignals(const SearchSignals&) = delete;
  SearchSignals& operator=(const SearchSignals&) = delete;

  // Updates the report, and waits up to `limit` milliseconds for a stop signal. Returns the signal's number, or 0 if
  // none has arrived.
  int wait(SearchReport& report, int limit = kLookForResultsEvery) {
    // After Ctrl-Z, the report must not wipe what it drew before the stop, so SIGCONT is handled first.
    if (const int number = take(report)) return number;
    report.update();
    pollfd readable{fd_.get(), POLLIN, 0};
    return ::poll(&readable, 1, limit) == 1 ? take(report) : 0;
  }

 private:
  // Returns the number of a stop signal that has arrived, or 0 if there is none.
  int take(SearchReport& report) {
    signalfd_siginfo info;
    if (::read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return 0;
    if (info.ssi_signo != SIGCONT) return static_cast<int>(info.ssi_signo);
    report.continue_after_stop();
    return 0;
  }

  sigset_t before_{};
  Fd fd_;
};

// Reports when the journal is waiting for its lock.
class JournalNotices {
 public:
  JournalNotices(tune::Journal& journal, SearchReport& report) : journal_(journal) {
    journal_.set_notice([&report](std::string_view text) {
      report.notice(text);
      report.update();
    });
  }
  ~JournalNotices() { journal_.set_notice({}); }
  JournalNotices(const JournalNotices&) = delete;
  JournalNotices& operator=(const JournalNotices&) = delete;

 private:
  tune::Journal& journal_;
};

std::string interruption(int signal) { return fmt::format("interrupted by SIG{}", ::sigabbrev_np(signal)); }

// Waits until the runs of a killed search have saved their checkpoints, because only then can their trials continue.
// Returns the number of a stop signal that arrives during the wait, or 0 if all runs have saved checkpoints.
int adopt_previous_runs(const std::vector<sched::RunEntry>& runs, int trials, const tune::Study& study,
                        tune::LocalTrialRunner& runner, SearchReport& report, SearchSignals& signals) {
  for (const sched::RunEntry& run : runs)
    if (run.alive) report.notice(fmt::format("waiting for run '{}' of the previous search to stop", run.status.name));
  if (std::ranges::none_of(runs, &sched::RunEntry::alive) && runner.any_previous_launcher())
    report.notice("waiting for launchers of the previous search to end");
  while (runner.any_previous_launcher())
    if (const int number = signals.wait(report)) return number;
  // Launchers that were about to start their runs have recorded them by now.
  for (const sched::RunEntry& run : runner.previous_runs(trials)) {
    while (sched::is_alive(run))
      if (const int number = signals.wait(report)) return number;
    runner.adopt(run, study.trials.size());
  }
  return 0;
}

// The trials, on this machine or in a cluster.
struct Trials {
  std::unique_ptr<kube::Client> client;  // null if the trials run on this machine
  std::unique_ptr<tune::SearchRunner> runner;
  // Takes over an earlier search's trials. Returns the number of a stop signal that arrives while it waits, or 0.
  std::function<int(const tune::Study& study, SearchReport& report, SearchSignals& signals)> adopt;

  const char* interrupt_text() const { return client ? "press Ctrl-C to stop waiting" : "Ctrl-C kills them"; }
};

Trials make_cluster_trials(const TunePlan& plan, const tune::StudyDirectory& directory, SearchReport& report) {
  Trials trials;
  trials.client = cluster_client(plan);
  auto runner =
      make_cluster_runner(plan, *trials.client, directory, [&report](std::string_view text) { report.notice(text); });
  trials.adopt = [own = runner.get()](const tune::Study& study, SearchReport&, SearchSignals&) {
    own->adopt(study);
    return 0;
  };
  trials.runner = std::move(runner);
  return trials;
}

Trials make_local_trials(const TunePlan& plan, const tune::StudyDirectory& directory, SearchReport& report) {
  const tune::StudySettings& settings = plan.settings;
  auto runner = std::make_unique<tune::LocalTrialRunner>(
      tune::LocalTrialPlan{.study = plan.study,
                           .directory = directory.path(),
                           .options = tune::run_options(settings),
                           .command = settings.command,
                           .working_directory = settings.directory,
                           .metric = settings.metric,
                           .notice = [&report](std::string_view text) { report.notice(text); }});
  Trials trials;
  trials.adopt = [own = runner.get(), previous = runner->previous_runs(settings.trials), count = settings.trials](
                     const tune::Study& study, SearchReport& to, SearchSignals& signals) {
    return adopt_previous_runs(previous, count, study, *own, to, signals);
  };
  trials.runner = std::move(runner);
  return trials;
}

// Stops the trials, which save checkpoints, after the search has failed.
void stop_trials(const Trials& trials, SearchReport& report, SearchSignals& signals) {
  tune::SearchRunner& runner = *trials.runner;
  // Stop signals that arrived while a sampler was working would end this process later if they were left pending.
  while (signals.wait(report, 0) != 0) {
  }
  if (!runner.any_left()) return;
  report.notice(
      fmt::format("the search failed; waiting for the trials to save checkpoints ({})", trials.interrupt_text()));
  runner.stop_all();
  while (runner.any_left())
    if (signals.wait(report) == SIGINT) runner.kill();
}

// Waits until the search's remaining work is done. The wait ends early after a limited time if the trials run on this
// machine, or when a signal arrives if they run in a cluster.
void settle(const TunePlan& plan, const Trials& trials, SearchReport& report, SearchSignals& signals) {
  bool noticed = false;
  for (int i = 0; !trials.runner->settle() && (trials.client || i < kMaxSettleTries); ++i) {
    if (trials.client && i >= kMaxSettleTries && !std::exchange(noticed, true))
      report.notice(
          fmt::format("waiting for the cluster to delete the jobs of ended trials ({})", trials.interrupt_text()));
    if (signals.wait(report) == 0 || !trials.client) continue;
    report.notice(fmt::format(
        "interrupted: some of the study's jobs remain; `adaptdl tune --resume --study {}` deletes them", plan.study));
    return;
  }
}

void search_to_end(const TunePlan& plan, tune::Search& search, const Trials& trials, SearchReport& report,
                   SearchSignals& signals) {
  tune::SearchRunner& runner = *trials.runner;
  bool stopping = false, killed = false;
  while (search.advance(std::chrono::system_clock::now())) {
    const int number = signals.wait(report, runner.has_more() ? 0 : kLookForResultsEvery);
    if (number == 0) continue;
    if (!std::exchange(stopping, true)) {
      report.notice(
          fmt::format("interrupted: waiting for the trials to save checkpoints ({})", trials.interrupt_text()));
      search.stop(interruption(number));
    } else if (number == SIGINT) {
      report.notice(trials.client ? "interrupted again: leaving the jobs as they are; they may still be running"
                                  : "interrupted again: killing the trials");
      runner.kill();
      killed = true;
    }
  }
  if (killed && trials.client) return;
  settle(plan, trials, report, signals);
}

// Describes a study that has reached its device-hours limit.
std::string used_up_text(const TunePlan& plan, double device_seconds) {
  return fmt::format("study '{}' has used {} of its {:g} device-hour{}", plan.study, format_hours(device_seconds),
                     plan.settings.gpu_hours, plan.settings.gpu_hours == 1 ? "" : "s");
}

[[noreturn]] void refuse_used_up(const TunePlan& plan, double device_seconds) {
  throw UsageError(fmt::format("tune: {}; raise --gpu-hours", used_up_text(plan, device_seconds)));
}

// Returns the study's sampler, or null if a stop signal arrived while the sampler's helper process was starting.
std::unique_ptr<tune::Sampler> make_interruptible_sampler(const TunePlan& plan, const tune::StudyDirectory& directory) {
  try {
    return make_study_sampler(plan.settings, plan.study, directory.journal());
  } catch (const tune::HelperInterrupted&) {
    return nullptr;
  }
}

SearchEnd run_search(const TunePlan& plan, tune::Journal& journal, const tune::StudyDirectory& directory,
                     const Trials& trials, SearchReport& report, SearchSignals& signals) {
  const tune::StudySettings& settings = plan.settings;
  const tune::Study& study = *journal.find(plan.study);
  const auto sampler = make_interruptible_sampler(plan, directory);
  if (!sampler) {
    int number = 0;
    while (number == 0) number = signals.wait(report);
    return {false, kSearchStopped, interruption(number)};
  }
  // This comes after everything that may be interrupted, because adopt() starts to follow an earlier search's jobs.
  if (const int number = trials.adopt(study, report, signals)) return {false, kSearchStopped, interruption(number)};
  const auto pruner = tune::make_pruner(settings.pruner, {.factor = settings.factor});
  tune::SearchPlan search_plan{plan.study, settings.metric, settings.space, settings.trials, settings.parallel, {}};
  search_plan.share = {*tune::find_share_mode(settings.share), plan.devices, settings.min_replicas,
                       settings.max_replicas};
  search_plan.max_device_seconds = tune::max_device_seconds(settings);
  if (plan.time) search_plan.deadline = std::chrono::system_clock::now() + *plan.time;
  tune::Search search(std::move(search_plan), journal, *sampler, *pruner, *trials.runner,
                      [&report](const tune::SearchEvent& event) { report.event(event); });
  search_to_end(plan, search, trials, report, signals);
  const bool finished = search.finished();
  if (!finished && search.used_up() && !search.started()) refuse_used_up(plan, search.device_seconds());
  if (!finished && search.used_up()) return {false, kSearchStopped, used_up_text(plan, search.device_seconds()), true};
  if (!finished) return {false, kSearchStopped, search.stop_reason()};
  return {true, tune::best_trial(*journal.find(plan.study)) == nullptr ? kNoResult : 0, ""};
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
  // The search must continue if the process that reads its notices exits.
  ::signal(SIGPIPE, SIG_IGN);
  // The report and the runner refer to each other.
  tune::SearchRunner* of_report = nullptr;
  SearchReport report(plan, journal, [&of_report](int number) { return of_report->status(number); });
  const JournalNotices notices(journal, report);
  // This is destroyed before the report, so that signals end the process while the report waits for its reader.
  SearchSignals signals;
  const Trials trials =
      plan.settings.cluster ? make_cluster_trials(plan, directory, report) : make_local_trials(plan, directory, report);
  of_report = trials.runner.get();
  report.begin(directory.path());
  try {
    const SearchEnd end = run_search(plan, journal, directory, trials, report, signals);
    report.end(end);
    return end.exit_code;
  } catch (const std::exception& error) {
    stop_trials(trials, report, signals);
    report.fail(dynamic_cast<const UsageError*>(&error) == nullptr ? kNoResult : kUsageExit, error.what());
    throw;
  }
}

}  // namespace adaptdl::cli
