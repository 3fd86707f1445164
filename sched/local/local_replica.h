// LocalReplica is a replica on this machine over one start: its process, its output, and how it ends.
//
// It is first running. If a stop kills the process but not what that had started, as with a shell script around the
// program, it is lingering. Then it is sweeping while the rest of its session is killed, and finally gone.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <poll.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "local/local_host.h"
#include "local/replica.h"
#include "local/replica_process.h"

namespace adaptdl::sched {

class LocalReplica final : public Replica {
 public:
  // Starts the replica with this environment. Throws as ReplicaProcess does, and Error if its log cannot be written.
  LocalReplica(LocalHost& host, int number, const ReplicaPlace& place, std::vector<std::string> environment,
               OnReport on_report);
  ~LocalReplica() override;

  pid_t pid() const noexcept { return process_.pid(); }
  bool ended() const override { return state_ != State::kRunning; }
  bool gone() const override { return state_ == State::kGone; }
  // Returns whether the process has ended, but what it started may not have. No event reports the end of that, so the
  // caller must check at short intervals.
  bool winding_down() const noexcept { return lingering() || sweeping(); }
  bool lingering() const noexcept { return state_ == State::kLingering; }
  bool sweeping() const noexcept { return state_ == State::kSweeping; }

  // Adds the descriptors to poll.
  void add_to(std::vector<pollfd>& polled, bool with_output) const;
  // Reads what it has written by now, up to a limit.
  void read();

  std::optional<ReplicaEnd> take_end() override;
  // Continues the wind-down; `alive` states whether anything that it started is left. After a stop, that may finish;
  // otherwise the caller must kill it, and the replica is gone when nothing is left. REQUIRES winding_down().
  void wind_down(bool alive);

  // The signal goes to the process only, since it may still need its workers.
  void ask_to_stop() override;
  bool ask_to_save() override;
  bool handles_save() const override { return !ended() && process_.handles(SIGUSR1); }
  bool is_starting() const override;
  bool handles_stop() const override { return ended() || process_.handles(SIGTERM); }
  // Records that its whole session was sent SIGKILL.
  void set_killed() noexcept { killed_ = true; }
  void kill(bool hung) override;

 private:
  enum class State { kRunning, kLingering, kSweeping, kGone };

  // Reads until at least `limit` bytes were read or no more are available. Closes the descriptor at its end.
  void read_from(Fd& fd, std::size_t limit, const std::function<void(std::string_view)>& sink);
  void read_all(std::size_t limit);
  void take_status(std::string_view bytes);

  LocalHost& host_;
  std::chrono::milliseconds start_up_;  // that the program may need before it handles SIGTERM
  ReplicaProcess process_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  State state_ = State::kRunning;
  bool asked_ = false;
  bool killed_ = false;
  bool hung_ = false;
  LineSplitter out_, err_;
  LineSplitter status_{std::size_t{64} << 10};
};

}  // namespace adaptdl::sched
