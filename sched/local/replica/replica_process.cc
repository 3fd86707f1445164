#include "local/replica/replica_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "adaptdl/error.h"
#include "local/base/process_tree.h"
#include "local/replica/replica_environment.h"

namespace adaptdl::sched {
namespace {

struct Child {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int out, err, status, go, failure;
  pid_t launcher;
};

// Only async-signal-safe calls are allowed between fork and exec, since another thread may have held a lock.
[[noreturn]] void become_program(const Child& child) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != child.launcher) ::_exit(1);  // the launcher died before the line above
  char go = 0;
  if (::read(child.go, &go, 1) != 1) ::_exit(1);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(child.out, STDOUT_FILENO) < 0 ||
      ::dup2(child.err, STDERR_FILENO) < 0) {
    ::_exit(1);
  }
  // The program must not inherit the files that the launcher opened or inherited.
  close_on_exec_from(STDERR_FILENO + 1);
  if (::fcntl(child.status, F_SETFD, 0) < 0) ::_exit(1);
  // Restores the default handling of signals, which the launcher changed or inherited from a shell that started it in
  // the background.
  for (const int signal_number : {SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGCHLD}) ::signal(signal_number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(child.program, child.arguments, child.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(child.failure, &error, sizeof error);
  ::_exit(127);
}

std::string why_not_executed(int error) {
  if (error == ENOEXEC)
    return "not a program that this machine can run; if it is a script, add a first line such as #!/bin/sh";
  if (error == ENOENT) return "its interpreter, named in its first line or as its loader, does not exist";
  return std::strerror(error);
}

}  // namespace

ReplicaProcess::ReplicaProcess(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                               std::vector<std::string> environment, Guardian& guardian)
    : guardian_(guardian) {
  Pipe out_pipe = make_pipe(), err_pipe = make_pipe(), status_pipe = make_pipe(), go = make_pipe(),
       failure = make_pipe();
  set_nonblocking(out_pipe.read);
  set_nonblocking(err_pipe.read);
  set_nonblocking(status_pipe.read);
  // A launcher that reads slowly must not delay training: the replica drops the report instead.
  set_nonblocking(status_pipe.write);
  environment.push_back(fmt::format("ADAPTDL_STATUS_FD={}", status_pipe.write.get()));
  const auto argument_pointers = to_pointers(arguments), environment_pointers = to_pointers(environment);
  const Child child{.program = program.c_str(),
                    .arguments = argument_pointers.data(),
                    .environment = environment_pointers.data(),
                    .out = out_pipe.write.get(),
                    .err = err_pipe.write.get(),
                    .status = status_pipe.write.get(),
                    .go = go.read.get(),
                    .failure = failure.write.get(),
                    .launcher = ::getpid()};
  pid_ = ::fork();
  if (pid_ < 0) throw Error(fmt::format("cannot start a replica: {}", std::strerror(errno)));
  if (pid_ == 0) {
    go.write.reset();
    become_program(child);
  }
  guardian_.watch(pid_);
  failure.write.reset();
  [[maybe_unused]] const ssize_t written = ::write(go.write.get(), "g", 1);
  int error = 0;
  ssize_t size = 0;
  do {
    size = ::read(failure.read.get(), &error, sizeof error);
  } while (size < 0 && errno == EINTR);
  if (size == sizeof error) {
    end();
    throw UsageError(fmt::format("cannot run '{}': {}", program.string(), why_not_executed(error)));
  }
  out = std::move(out_pipe.read);
  err = std::move(err_pipe.read);
  status = std::move(status_pipe.read);
}

ReplicaProcess::~ReplicaProcess() { end(); }

void ReplicaProcess::end() noexcept {
  if (reaped_ || pid_ < 0) return;
  constexpr int kRounds = 100;
  constexpr useconds_t kPause = 10'000;
  for (int round = 0; round < kRounds && (kill_session() > 0 || !exit_status()); ++round) ::usleep(kPause);
  if (exit_status()) reap();
}

std::optional<ExitStatus> ReplicaProcess::exit_status() {
  if (exit_status_) return exit_status_;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_) {
    exit_status_ = ExitStatus{.signalled = info.si_code != CLD_EXITED, .code = info.si_status};
  }
  return exit_status_;
}

bool ReplicaProcess::handles(int signal_number) const {
  std::ifstream file(fmt::format("/proc/{}/status", pid_));
  const unsigned long long mask = 1ULL << (signal_number - 1);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("SigIgn:") && !line.starts_with("SigCgt:")) continue;
    if ((std::stoull(line.substr(line.find(':') + 1), nullptr, 16) & mask) != 0) return true;
  }
  return false;
}

void ReplicaProcess::signal(int signal_number) noexcept {
  if (!reaped_) ::kill(pid_, signal_number);
}

std::size_t ReplicaProcess::kill_session() noexcept { return reaped_ ? 0 : kill_sessions({pid_}).size(); }

void ReplicaProcess::reap() noexcept {
  if (reaped_) return;
  guardian_.forget(pid_);
  ::waitpid(pid_, nullptr, 0);
  reaped_ = true;
}

}  // namespace adaptdl::sched
