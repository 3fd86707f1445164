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
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "local/launch_observer.h"
#include "local/lines.h"
#include "local/outcome.h"
#include "local/replica_log.h"
#include "local/replica_process.h"

namespace adaptdl::sched {

struct LaunchPlan;

class LocalReplica {
 public:
  using OnReport = std::function<void(const LocalReplica&, const nlohmann::json&)>;

  // Starts the replica with this environment. `number` distinguishes it from the other replicas of this start.
  // `on_report` is called with each JSON object that it writes to its status descriptor. Throws as ReplicaProcess does,
  // and Error if its log cannot be written.
  LocalReplica(const LaunchPlan& plan, int number, int rank, int restarts, std::vector<std::string> environment,
               Guardian& guardian, LaunchObserver& observer, OnReport on_report);

  int number() const noexcept { return number_; }
  // Returns its current rank; for a newcomer, the rank that it should get.
  int rank() const noexcept { return rank_; }
  pid_t pid() const noexcept { return process_.pid(); }
  // Sets the rank under which its lines are shown and logged. Returns a warning if a log cannot be written.
  std::optional<std::string> set_rank(int rank);
  bool gone() const noexcept { return state_ == State::kGone; }
  // Returns whether take_end() has returned its end.
  bool ended() const noexcept { return state_ != State::kRunning; }
  // Returns whether the process has ended, but what it started may not have. No event reports the end of that, so the
  // caller must check at short intervals.
  bool winding_down() const noexcept { return lingering() || sweeping(); }
  bool lingering() const noexcept { return state_ == State::kLingering; }
  bool sweeping() const noexcept { return state_ == State::kSweeping; }

  // Adds the descriptors to poll.
  void add_to(std::vector<pollfd>& polled, bool with_output) const;
  // Reads what it has written by now, up to a limit.
  void read();
  // Appends what it wrote to its log. Returns a warning if that failed.
  std::optional<std::string> flush_log() { return log_ ? log_->flush() : std::nullopt; }

  // Returns how the process ended, if it has ended since the last call. All of its output has been read by then.
  std::optional<ReplicaEnd> take_end();
  // Continues the wind-down; `alive` states whether anything that it started is left. After a stop, that may finish;
  // otherwise the caller must kill it, and the replica is gone when nothing is left. REQUIRES winding_down().
  void wind_down(bool alive);

  // Asks for a checkpoint and an exit. SIGTERM goes to the process only, since it may still need its workers.
  void ask_to_stop();
  // Does the same, but nothing while the program is still starting and would die of the signal. It must then be called
  // again later.
  void ask_to_stop_when_ready();
  // Asks for a checkpoint without a stop, by SIGUSR1, if the process handles that signal. Returns whether it does.
  bool ask_to_save();
  // Returns whether it started only just now and does not handle SIGTERM yet.
  bool is_starting() const;
  // Returns whether it has ended, or does not die of a request to stop.
  bool handles_stop() const { return ended() || process_.handles(SIGTERM); }
  // Records that its whole session was sent SIGKILL.
  void set_killed() noexcept { killed_ = true; }
  // Sends SIGKILL to its whole session. If `hung`, it counts as a failure of the replica's own.
  void kill(bool hung) noexcept;

  std::vector<std::string> last_lines() const { return last_lines_.get(); }

 private:
  enum class State { kRunning, kLingering, kSweeping, kGone };

  // Reads until at least `limit` bytes were read or no more are available. Closes the descriptor at its end.
  void read_from(Fd& fd, std::size_t limit, const std::function<void(std::string_view)>& sink);
  void read_all(std::size_t limit);
  void take_status(std::string_view bytes);
  void take_output(Stream stream, std::string_view text, bool ends);

  const LaunchPlan& plan_;
  int number_;
  int rank_;
  int restarts_;
  std::chrono::milliseconds start_up_;  // that the program may need before it handles SIGTERM
  LaunchObserver& observer_;
  OnReport on_report_;
  std::optional<ReplicaLog> log_;
  ReplicaProcess process_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  State state_ = State::kRunning;
  bool asked_ = false;
  bool killed_ = false;
  bool hung_ = false;
  LineSplitter out_, err_;
  LineSplitter status_{std::size_t{64} << 10};
  LastLines last_lines_;
};

}  // namespace adaptdl::sched
