// LocalReplica is a replica on this machine within one start of the run: its process, its output, and how it ends.
//
// A replica is first running. It is lingering if a stop has ended the process but not the processes that it had
// started, which happens if a shell script runs the program. The replica is sweeping while the rest of its session is
// killed, and finally it is gone.
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

#include "local/replica/local_host.h"
#include "local/replica/replica.h"
#include "local/replica/replica_process.h"

namespace adaptdl::sched {

class LocalReplica final : public Replica {
 public:
  // Starts the replica with this environment. Throws the same errors as ReplicaProcess, and Error if its log cannot be
  // written.
  LocalReplica(LocalHost& host, int number, const ReplicaPlace& place, std::vector<std::string> environment,
               OnReport on_report);
  ~LocalReplica() override;

  pid_t pid() const noexcept { return process_.pid(); }
  bool ended() const override { return state_ != State::kRunning; }
  bool gone() const override { return state_ == State::kGone; }
  // Returns whether the process has ended while processes that it started may still be alive. No event reports their
  // end, so the caller must check at short intervals.
  bool winding_down() const noexcept { return lingering() || sweeping(); }
  bool lingering() const noexcept { return state_ == State::kLingering; }
  bool sweeping() const noexcept { return state_ == State::kSweeping; }

  // Adds the replica's descriptors to `polled`. The descriptors for output are added only if `with_output` is true or
  // the replica has been asked to stop.
  void add_to(std::vector<pollfd>& polled, bool with_output) const;
  // Reads the output that the replica has written so far, up to a limit.
  void read();

  std::optional<ReplicaEnd> take_end() override;
  // Continues the wind-down. `alive` is true if any process that the replica started is left. After a stop, such
  // processes may finish; otherwise, the caller must kill them. The replica is gone once no such process is left.
  // REQUIRES winding_down().
  void wind_down(bool alive);

  // Signals only the process itself, since it may still need its workers.
  void ask_to_stop() override;
  bool ask_to_save() override;
  bool handles_save() const override { return !ended() && process_.handles(SIGUSR1); }
  bool is_starting() const override;
  bool handles_stop() const override { return ended() || process_.handles(SIGTERM); }
  // Records that SIGKILL was sent to the replica's whole session.
  void set_killed() noexcept { killed_ = true; }
  void kill(bool hung) override;

 private:
  enum class State { kRunning, kLingering, kSweeping, kGone };

  // Reads until at least `limit` bytes have been read or no more are available. Closes the descriptor at end-of-file.
  void read_from(Fd& fd, std::size_t limit, const std::function<void(std::string_view)>& sink);
  void read_all(std::size_t limit);
  void finish_lines();
  void take_status(std::string_view bytes);

  LocalHost& host_;
  std::chrono::milliseconds start_up_;  // time that the program may need before it handles SIGTERM
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
