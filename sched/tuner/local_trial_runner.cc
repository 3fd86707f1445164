#include "tuner/local_trial_runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "local/fd.h"
#include "local/replica_environment.h"
#include "local/run_client.h"
#include "local/run_directory.h"
#include "local/run_record.h"
#include "private_files.h"
#include "tune/command_template.h"

namespace adaptdl::sched::tune {
namespace {

namespace fs = std::filesystem;

constexpr int kSaved = 128 + SIGTERM;  // of `adaptdl run`: it stopped with a checkpoint

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Launch {
  const char* program;
  char* const* arguments;
  char* const* environment;
  const char* directory;
  int log;
  pid_t parent;
};

// Between fork and exec, where only async-signal-safe functions may be called.
[[noreturn]] void become_launcher(const Launch& launch) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int null = ::open("/dev/null", O_RDWR);
  if (::getppid() != launch.parent || null < 0 || ::chdir(launch.directory) != 0) ::_exit(1);
  if (::dup2(null, STDIN_FILENO) < 0 || ::dup2(null, STDOUT_FILENO) < 0 || ::dup2(launch.log, STDERR_FILENO) < 0)
    ::_exit(1);
  close_on_exec_from(STDERR_FILENO + 1);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(launch.program, launch.arguments, launch.environment);
  ::_exit(127);
}

void write_file(const fs::path& file, const std::string& text) {
  std::ofstream stream(file, std::ios::trunc);
  stream << text;
  if (!stream.flush()) throw Error(fmt::format("cannot write {}", file.string()));
}

std::string run_name(const std::string& study, int number) { return fmt::format("{}-{}", study, number); }

// The record of a trial's run, if there is one.
std::optional<RunEntry> find_record(const std::string& name) {
  for (RunEntry& run : list_runs(runs_directory()))
    if (run.status.name == name) return std::move(run);
  return {};
}

}  // namespace

LocalTrialRunner::LocalTrialRunner(LocalTrialPlan plan) : plan_(std::move(plan)) {}

LocalTrialRunner::~LocalTrialRunner() {
  for (const auto& [number, pid] : active_) ::kill(pid, SIGTERM);
  for (const auto& [number, pid] : active_)
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
}

fs::path LocalTrialRunner::trial_directory(int number) const {
  return plan_.directory / "trials" / std::to_string(number);
}

std::vector<std::string> LocalTrialRunner::run_arguments(int number, const Values& values) const {
  const fs::path directory = trial_directory(number);
  std::vector<std::string> arguments{"adaptdl",      "run",
                                     "--name",       run_name(plan_.study, number),
                                     "--checkpoint", directory / "checkpoints",
                                     "--logs",       directory / "logs"};
  arguments.insert(arguments.end(), plan_.options.begin(), plan_.options.end());
  arguments.emplace_back("--");
  const auto command = make_command(plan_.command, values);
  arguments.insert(arguments.end(), command.begin(), command.end());
  return arguments;
}

void LocalTrialRunner::start(int number, const Values& values) {
  const fs::path directory = trial_directory(number);
  if (const auto error = create_private_directories(directory))
    throw Error(fmt::format("cannot create {}: {}", directory.string(), error.message()));
  write_file(directory / "params.json", nlohmann::json(values).dump(2) + "\n");
  Environment variables = caller_environment();
  for (const auto& [name, value] : parameter_variables(values)) variables[name] = value;
  variables["ADAPTDL_PARAMS_FILE"] = directory / "params.json";
  variables["ADAPTDL_RESULTS_FILE"] = directory / "results.jsonl";
  const std::vector<std::string> environment = to_strings(variables), arguments = run_arguments(number, values);
  const auto argument_pointers = pointers_to(arguments), environment_pointers = pointers_to(environment);
  const fs::path log_file = directory / "run.log";
  const Fd log(::open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kPrivateFile));
  if (!log) throw Error(fmt::format("cannot write {}: {}", log_file.string(), std::strerror(errno)));
  const Launch launch{plan_.launcher.c_str(),
                      argument_pointers.data(),
                      environment_pointers.data(),
                      plan_.working_directory.c_str(),
                      log.get(),
                      ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) throw Error(fmt::format("cannot start trial {}: {}", number, std::strerror(errno)));
  if (pid == 0) become_launcher(launch);
  active_[number] = pid;
  if (!results_.contains(number))
    results_.emplace(number,
                     std::make_unique<TrialResults>(directory / "results.jsonl", directory / "logs", plan_.metric));
}

void LocalTrialRunner::stop(int number) {
  if (const auto active = active_.find(number); active != active_.end()) ::kill(active->second, SIGTERM);
}

bool LocalTrialRunner::is_active(int number) const { return active_.contains(number); }

// The second request to stop kills the replicas of a run.
void LocalTrialRunner::kill() {
  for (const auto& [number, pid] : active_) ::kill(pid, SIGTERM);
}

std::vector<TrialEvent> LocalTrialRunner::poll() {
  std::vector<TrialEvent> events;
  for (auto active = active_.begin(); active != active_.end();) {
    const auto [number, pid] = *active;
    int status = 0;
    const bool ended = ::waitpid(pid, &status, WNOHANG) == pid;
    TrialResults& results = *results_.at(number);
    for (const Result& result : ended ? results.finish() : results.read()) events.push_back({number, result});
    if (!ended) {
      ++active;
      continue;
    }
    active = active_.erase(active);
    events.push_back({number, how_ended(number, status)});
  }
  return events;
}

TrialEnd LocalTrialRunner::how_ended(int number, int status) const {
  std::string why;
  if (const auto run = find_record(run_name(plan_.study, number))) {
    why = run->status.why;
    // All that is worth keeping is in the trial's directory.
    if (!run->alive) remove_run(*run, false);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {TrialEnd::How::kDone, ""};
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSaved) return {TrialEnd::How::kStopped, why};
  if (why.empty())
    why = WIFEXITED(status) ? fmt::format("exit code {}", WEXITSTATUS(status))
                            : fmt::format("killed by signal {}", WTERMSIG(status));
  return {TrialEnd::How::kFailed, fmt::format("{}; see {}", why, (trial_directory(number) / "run.log").string())};
}

void LocalTrialRunner::discard(int number) {
  std::error_code ignored;
  fs::remove_all(trial_directory(number) / "checkpoints", ignored);
}

}  // namespace adaptdl::sched::tune
