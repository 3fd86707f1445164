// One replica as a process: started in a session of its own, with pipes for what it says.
//
// The process gets SIGKILL from the kernel when the launcher dies, and the guardian knows of it before it runs a single
// instruction of the program.
//
// Threading: started and used by one thread, which must live as long as the replicas (PR_SET_PDEATHSIG is about
// threads). Others may run besides: between fork and exec nothing is called that one of them could have locked.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "local/fd.h"
#include "local/guardian.h"

namespace adaptdl::sched {

// How a process ended.
struct ExitStatus {
  bool signalled = false;
  int code = 0;  // the exit code, or the number of the signal

  bool operator==(const ExitStatus&) const = default;
};

class ReplicaProcess {
 public:
  // Starts `program` with these arguments (argv[0] included) and exactly this environment ("NAME=VALUE"), to which
  // ADAPTDL_STATUS_FD is added. Its standard input is /dev/null, and it inherits no other descriptors. Returns once the
  // program was executed; throws UsageError if it could not be, and Error if the system has no process to give.
  ReplicaProcess(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                 std::vector<std::string> environment, Guardian& guardian);
  // Kills and reaps whatever is left of it.
  ~ReplicaProcess();
  ReplicaProcess(const ReplicaProcess&) = delete;
  ReplicaProcess& operator=(const ReplicaProcess&) = delete;

  pid_t pid() const noexcept { return pid_; }

  // How the process ended, if it has. It stays a zombie, so that its id and session are not used again, until reap().
  std::optional<ExitStatus> exit_status();
  // Whether the process catches or ignores the signal, rather than to die of it.
  bool handles(int signal_number) const;
  // Signals the process itself, and not what it started.
  void signal(int signal_number) noexcept;
  // Sends SIGKILL to everything in its session. Returns how many processes were still alive.
  std::size_t kill_session() noexcept;
  // Tells the guardian to forget it, and the kernel too. REQUIRES exit_status().
  void reap() noexcept;

  // The read ends, all non-blocking.
  Fd out, err, status;

 private:
  void end() noexcept;

  Guardian& guardian_;
  pid_t pid_ = -1;
  std::optional<ExitStatus> exit_status_;
  bool reaped_ = false;
};

}  // namespace adaptdl::sched
