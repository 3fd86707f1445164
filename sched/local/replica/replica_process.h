// ReplicaProcess is the process of one replica. It has its own session, and pipes for its output and status.
//
// The kernel sends the process SIGKILL when the launcher dies. The guardian begins to watch the process before the
// process executes any instruction of the program.
//
// Threading: the object must be created and used by one thread, which must live as long as the replicas
// (PR_SET_PDEATHSIG is tied to the thread). Other threads may run, since the code between fork and exec takes no lock
// that one of them could hold.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "local/replica/guardian.h"

namespace adaptdl::sched {

// How a process ended.
struct ExitStatus {
  bool signalled = false;
  int code = 0;  // the exit code or the signal number

  bool operator==(const ExitStatus&) const = default;
};

class ReplicaProcess {
 public:
  // Starts `program` with these arguments (including argv[0]) and exactly this environment ("NAME=VALUE"), to which
  // ADAPTDL_STATUS_FD is added. Its standard input is /dev/null, and it inherits no other descriptors. Returns once
  // exec has succeeded. Throws UsageError if the program cannot be executed, and Error if a process or pipe cannot be
  // created.
  ReplicaProcess(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                 std::vector<std::string> environment, Guardian& guardian);
  // Kills the remaining processes of the session, and reaps the process.
  ~ReplicaProcess();
  ReplicaProcess(const ReplicaProcess&) = delete;
  ReplicaProcess& operator=(const ReplicaProcess&) = delete;

  pid_t pid() const noexcept { return pid_; }

  // Returns how the process ended, or nullopt if it is still running. A process that has ended stays a zombie until
  // reap(), so that its id and session stay reserved.
  std::optional<ExitStatus> exit_status();
  // Returns whether the process catches or ignores the signal instead of being killed by it.
  bool handles(int signal_number) const;
  // Signals the process itself, not the processes that it started.
  void signal(int signal_number) noexcept;
  // Sends SIGKILL to its whole session. Returns how many processes were still alive.
  std::size_t kill_session() noexcept;
  // Makes the guardian forget the process, and reaps it. REQUIRES exit_status().
  void reap() noexcept;

  // The read ends of the process's pipes, all non-blocking.
  Fd out, err, status;

 private:
  void end() noexcept;

  Guardian& guardian_;
  pid_t pid_ = -1;
  std::optional<ExitStatus> exit_status_;
  bool reaped_ = false;
};

}  // namespace adaptdl::sched
