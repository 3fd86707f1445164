#include "tuner/local_trial_runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "adaptdl/error.h"
#include "base/fd.h"
#include "base/private_files.h"
#include "local/base/directory_lock.h"
#include "local/record/run_client.h"
#include "local/record/run_directory.h"
#include "local/record/run_record.h"
#include "local/replica/replica_environment.h"
#include "tune/study/command_template.h"

namespace adaptdl::sched::tune {
namespace {

namespace fs = std::filesystem;

constexpr int kSaved = 128 + SIGTERM;  // exit code of `adaptdl run`: it stopped with a checkpoint
constexpr int kUsage = 2;              // exit code of `adaptdl run`: it refused its arguments
constexpr int kNoLauncher = 127;       // exit code if `adaptdl run` could not be executed
// How often a run's record is read for its device-seconds.
constexpr std::chrono::seconds kReadUsageEvery{5};
// How long to pause between attempts, and how many attempts to make, while another process has locked a log or the
// record of the last run.
constexpr std::chrono::milliseconds kUnlockPause{50};
constexpr int kMaxUnlockTries = 40;
constexpr std::string_view kErrorPrefix = "adaptdl: error: ";

struct Launch {
  const char* program;
  char* const* arguments;
  char* const* environment;
  const char* directory;
  int log;
  pid_t parent;
};

[[noreturn]] void give_up(std::string_view why) {
  for (const std::string_view part : {kErrorPrefix, why, std::string_view("\n")})
    if (::write(STDERR_FILENO, part.data(), part.size()) < 0) break;
  ::_exit(kNoLauncher);
}

// Runs between fork and exec, where only async-signal-safe functions may be called.
[[noreturn]] void become_launcher(const Launch& launch) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int null = ::open("/dev/null", O_RDWR);
  if (::dup2(launch.log, STDERR_FILENO) < 0) ::_exit(kNoLauncher);
  if (::getppid() != launch.parent) ::_exit(kNoLauncher);
  if (::chdir(launch.directory) != 0) give_up("cannot change to the study's working directory");
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(null, STDOUT_FILENO) < 0) give_up("cannot open /dev/null");
  close_on_exec_from(STDERR_FILENO + 1);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(launch.program, launch.arguments, launch.environment);
  give_up("cannot execute adaptdl");
}

void write_file(const fs::path& file, const std::string& text) {
  std::ofstream stream(file, std::ios::trunc);
  stream << text;
  if (!stream.flush()) throw Error(fmt::format("cannot write file '{}': {}", file.string(), std::strerror(errno)));
}

std::string run_name(const std::string& study, int number) { return fmt::format("{}-{}", study, number); }

// Returns the file that receives the standard error of a trial's launcher.
fs::path log_of(const fs::path& trial) { return trial / "run.log"; }

// Returns the number of the trial whose run has that name, or nullopt.
std::optional<int> trial_number(const std::string& study, const std::string& name) {
  if (!name.starts_with(study + "-")) return {};
  const char* const begin = name.data() + study.size() + 1;
  const char* const end = name.data() + name.size();
  int number = -1;
  const auto [rest, error] = std::from_chars(begin, end, number);
  return error == std::errc() && rest == end && number >= 0 && run_name(study, number) == name ? std::optional(number)
                                                                                               : std::nullopt;
}

// Returns the error with which `adaptdl run` ended.
std::string last_error(const fs::path& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) last = std::move(line);
  if (last.starts_with(kErrorPrefix)) last.erase(0, kErrorPrefix.size());
  return last.empty() ? fmt::format("see '{}'", log.string()) : last;
}

// Removes the directories that trials' launchers left behind because they were killed before they had written anything.
// A launcher that is about to lock its directory creates it again.
void remove_empty_records(const std::string& study) {
  std::error_code error;
  for (fs::directory_iterator at(runs_directory(), error), end; !error && at != end; at.increment(error)) {
    if (trial_number(study, at->path().filename().string())) ::rmdir(at->path().c_str());
  }
}

// Ignores errors, because a leftover record does no harm.
void remove_record(const RunEntry& run) noexcept {
  try {
    remove_run(run, true);
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace

LocalTrialRunner::LocalTrialRunner(LocalTrialPlan plan) : plan_(std::move(plan)) {}

LocalTrialRunner::~LocalTrialRunner() {
  stop_all();
  for (const auto& [number, run] : active_)
    while (run.pid > 0 && ::waitpid(run.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
}

bool LocalTrialRunner::is_own(const RunEntry& run, int number) const {
  std::error_code ignored;
  return fs::weakly_canonical(run.status.checkpoints, ignored) ==
         fs::weakly_canonical(trial_directory(number) / "checkpoints", ignored);
}

std::optional<RunEntry> LocalTrialRunner::find_record(int number) const {
  auto run = read_run(runs_directory(), run_name(plan_.study, number));
  return run && is_own(*run, number) ? std::move(run) : std::nullopt;
}

std::optional<RunStatus> LocalTrialRunner::status(int number) const {
  const auto run = find_record(number);
  return run ? std::optional(run->status) : std::nullopt;
}

void LocalTrialRunner::check_run_name(int number) const {
  const auto run = read_run(runs_directory(), run_name(plan_.study, number));
  if (run && !is_own(*run, number))
    throw UsageError(
        fmt::format("run '{0}' has the name of trial {1} but does not belong to study '{2}'; remove it with `adaptdl "
                    "delete {0}`, or use another study name",
                    run->status.name, number, plan_.study));
}

std::vector<RunEntry> LocalTrialRunner::previous_runs(int trials) const {
  remove_empty_records(plan_.study);
  std::vector<RunEntry> previous;
  for (RunEntry& run : list_runs(runs_directory())) {
    const auto number = trial_number(plan_.study, run.status.name);
    if (!number) continue;
    if (is_own(run, *number))
      previous.push_back(std::move(run));
    else if (*number < trials)
      check_run_name(*number);
  }
  return previous;
}

bool LocalTrialRunner::any_previous_launcher() const {
  std::error_code none_started;
  const fs::directory_iterator trials(plan_.directory / "trials", none_started);
  return std::ranges::any_of(trials, [](const auto& trial) { return is_file_locked(log_of(trial.path())); });
}

void LocalTrialRunner::adopt(const RunEntry& run, std::size_t trials) {
  const auto number = trial_number(plan_.study, run.status.name);
  const auto ended = number ? find_record(*number) : std::nullopt;
  if (!ended || ended->alive) return;
  const std::string& state = ended->status.state;
  if (static_cast<std::size_t>(*number) >= trials) return remove_record(*ended);
  if (state != "done" && state != "failed") {
    adopted_.insert(*number);
    return;
  }
  results_of(*number);
  // The program may have failed only because it was asked to stop when the search died, so the trial continues. If the
  // program failed for another reason, it will fail again.
  active_[*number] = {0, state == "done" ? TrialEnd{} : TrialEnd{TrialEnd::How::kKilled, ended->status.why}, {}, {}};
}

fs::path LocalTrialRunner::trial_directory(int number) const {
  return plan_.directory / "trials" / std::to_string(number);
}

std::vector<std::string> LocalTrialRunner::run_arguments(int number, const Values& values) const {
  const fs::path directory = trial_directory(number);
  std::vector<std::string> arguments{"adaptdl",      "run",
                                     "--name",       run_name(plan_.study, number),
                                     "--checkpoint", directory / "checkpoints",
                                     "--logs",       TrialResults::log_directory(directory)};
  arguments.insert(arguments.end(), plan_.options.begin(), plan_.options.end());
  arguments.emplace_back("--");
  const auto command = make_command(plan_.command, values);
  arguments.insert(arguments.end(), command.begin(), command.end());
  return arguments;
}

void LocalTrialRunner::start(int number, const Values& values) {
  const fs::path directory = trial_directory(number);
  for (int i = 0; i < kMaxUnlockTries && !settle() && ended_.contains(number); ++i)
    std::this_thread::sleep_for(kUnlockPause);
  ended_.erase(number);
  check_run_name(number);
  if (const auto error = create_private_directories(directory))
    throw Error(fmt::format("cannot create directory '{}': {}", directory.string(), error.message()));
  write_file(directory / "params.json", nlohmann::json(values).dump(2) + "\n");
  Environment variables = caller_environment();
  for (const auto& [name, value] : parameter_variables(values)) variables[name] = value;
  variables["ADAPTDL_PARAMS_FILE"] = directory / "params.json";
  variables["ADAPTDL_RESULTS_FILE"] = TrialResults::report_file(directory);
  variables["ADAPTDL_TENSORBOARD_LOGDIR"] = TrialResults::event_directory(directory);
  const std::vector<std::string> environment = to_strings(variables), arguments = run_arguments(number, values);
  const auto argument_pointers = to_pointers(arguments), environment_pointers = to_pointers(environment);
  const fs::path log_file = log_of(directory);
  const Fd log(::open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kPrivateFile));
  if (!log) throw Error(fmt::format("cannot write file '{}': {}", log_file.string(), std::strerror(errno)));
  // The launcher holds this lock through its standard error: see any_previous_launcher().
  for (int i = 0; i < kMaxUnlockTries && lock_file(log) == Locking::kHeld; ++i)
    std::this_thread::sleep_for(kUnlockPause);
  const Launch launch{plan_.launcher.c_str(),
                      argument_pointers.data(),
                      environment_pointers.data(),
                      plan_.working_directory.c_str(),
                      log.get(),
                      ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) throw Error(fmt::format("cannot start trial {}: {}", number, std::strerror(errno)));
  if (pid == 0) become_launcher(launch);
  active_[number] = {pid, {}, {}, std::chrono::steady_clock::now()};
  results_of(number);
}

TrialResults& LocalTrialRunner::results_of(int number) {
  auto& results = results_[number];
  const auto notice = [this, number](std::string_view text) {
    plan_.notice(fmt::format("trial {}: {}", number, text));
  };
  if (!results) results = std::make_unique<TrialResults>(trial_directory(number), plan_.metric, notice);
  return *results;
}

void LocalTrialRunner::stop(int number) {
  const auto run = active_.find(number);
  if (run == active_.end()) return;
  run->second.may_miss_results = true;
  if (run->second.pid > 0) ::kill(run->second.pid, SIGTERM);
}

void LocalTrialRunner::set_share(int number, const RunShare& share) {
  if (const auto run = active_.find(number); run != active_.end()) run->second.share.set(share);
}

bool LocalTrialRunner::is_active(int number) const { return active_.contains(number); }

void LocalTrialRunner::stop_all() {
  for (const auto& [number, run] : active_) stop(number);
}

bool LocalTrialRunner::any_left() {
  for (auto& [number, run] : active_)
    if (run.pid > 0 && ::waitpid(run.pid, nullptr, WNOHANG) != 0) run.pid = 0;
  return std::ranges::any_of(active_, [](const auto& each) { return each.second.pid > 0; });
}

// A run that was asked to stop kills its replicas on SIGINT, not on another SIGTERM.
void LocalTrialRunner::kill() {
  for (const auto& [number, run] : active_)
    if (run.pid > 0) ::kill(run.pid, SIGINT);
}

std::vector<TrialEvent> LocalTrialRunner::poll() {
  settle();
  has_more_ = false;
  std::vector<TrialEvent> events;
  for (const int number : std::exchange(adopted_, {})) {
    if (const auto usage = usage_of(number, true)) events.push_back({number, *usage});
    ended_.insert(number);
  }
  for (auto run = active_.begin(); run != active_.end();)
    run = poll_run(run->first, run->second, events) ? active_.erase(run) : std::next(run);
  return events;
}

// Appends the run's new events. Returns whether the run has ended and all its events have been appended.
bool LocalTrialRunner::poll_run(int number, Active& run, std::vector<TrialEvent>& events) {
  int status = 0;
  if (run.pid > 0 && ::waitpid(run.pid, &status, WNOHANG) == run.pid)
    run = {.pid = 0,
           .end = how_ended(number, status),
           .share = {},
           .usage_read = {},
           .may_miss_results = run.may_miss_results};
  if (run.pid > 0) run.share.tick([this, number] { return find_record(number); });
  TrialResults& results = results_of(number);
  for (const Result& result : results.read()) events.push_back({number, result});
  if (run.end && !results.has_more())
    for (const Result& result : results.finish()) events.push_back({number, result});
  has_more_ = has_more_ || results.has_more();
  const bool complete = run.end && !results.has_more() && (!results.is_blocked() || run.may_miss_results);
  const auto now = std::chrono::steady_clock::now();
  if (complete || (!run.end && now - run.usage_read >= kReadUsageEvery)) {
    run.usage_read = now;
    if (const auto usage = usage_of(number, complete)) events.push_back({number, *usage});
  }
  if (!complete) return false;
  results.close();
  events.push_back({number, *run.end});
  ended_.insert(number);
  return true;
}

// Until the launcher has written its own record, the record describes the trial's previous run.
std::optional<RunUsage> LocalTrialRunner::usage_of(int number, bool is_last) const {
  const auto run = find_record(number);
  if (!run) return {};
  const auto started = std::chrono::duration_cast<std::chrono::milliseconds>(run->status.started.time_since_epoch());
  const std::string id = fmt::format("{}-{}", started.count(), run->status.pid);
  return RunUsage{id, run->status.device_seconds, is_last};
}

// The agent, which a launcher starts, may hold the launcher's lock for a moment after the launcher has ended.
bool LocalTrialRunner::settle() {
  std::erase_if(ended_, [this](int number) {
    const auto run = find_record(number);
    if (run && run->alive) return false;
    if (run) remove_record(*run);
    return true;
  });
  return ended_.empty();
}

TrialEnd LocalTrialRunner::how_failed(int number, const std::string& why) const {
  return {TrialEnd::How::kFailed, fmt::format("{}; see '{}'", why, log_of(trial_directory(number)).string())};
}

TrialEnd LocalTrialRunner::how_ended(int number, int status) const {
  using How = TrialEnd::How;
  if (WIFSIGNALED(status))
    return {How::kKilled, fmt::format("`adaptdl run` was killed by SIG{}", ::sigabbrev_np(WTERMSIG(status)))};
  const int code = WEXITSTATUS(status);
  const auto run = find_record(number);
  if (code == 0) return {How::kDone, ""};
  if (code == kSaved) return {How::kStopped, run ? run->status.why : ""};
  // If the program itself ended with one of these codes, the run has a record with that exit code.
  if ((code == kUsage || code == kNoLauncher) && !(run && run->status.exit_code))
    return {How::kNotStarted, last_error(log_of(trial_directory(number)))};
  return how_failed(number, run && !run->status.why.empty() ? run->status.why : fmt::format("exit code {}", code));
}

void LocalTrialRunner::discard(int number) {
  std::error_code ignored;
  fs::remove_all(trial_directory(number) / "checkpoints", ignored);
}

}  // namespace adaptdl::sched::tune
