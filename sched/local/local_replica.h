// A replica of this machine, over one start: its process, what it says, and how it ends.
//
// It passes through: running, then (if a stop killed the process itself but not what it had started, as with a shell
// script around the program) lingering, then sweeping up what is left of its session, then gone.
//
// Threading: the launcher's thread.
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

  // Starts the replica with this environment; `number` tells it from the others of this start. `on_report` is called
  // with each JSON object that it writes to its status descriptor. Throws as ReplicaProcess does, and Error if its log
  // cannot be written.
  LocalReplica(const LaunchPlan& plan, int number, int rank, int restarts, std::vector<std::string> environment,
               Guardian& guardian, LaunchObserver& observer, OnReport on_report);

  int number() const noexcept { return number_; }
  // Its present one; a newcomer's is that which it is to have.
  int rank() const noexcept { return rank_; }
  pid_t pid() const noexcept { return process_.pid(); }
  // From now on its lines bear this rank and go to that rank's log. Returns a warning if the log cannot be written.
  std::optional<std::string> set_rank(int rank);
  bool gone() const noexcept { return state_ == State::kGone; }
  // Whether its end was taken.
  bool ended() const noexcept { return state_ != State::kRunning; }
  // Whether the process has ended and what it started may not have. No event tells of that: it is looked for in short
  // intervals.
  bool winding_down() const noexcept { return lingering() || sweeping(); }
  bool lingering() const noexcept { return state_ == State::kLingering; }
  bool sweeping() const noexcept { return state_ == State::kSweeping; }

  // Adds what to poll for.
  void add_to(std::vector<pollfd>& polled, bool with_output) const;
  // Takes what it has said by now, a bounded amount.
  void read();
  // Appends what it said to its log; returns a warning if that failed.
  std::optional<std::string> flush_log() { return log_ ? log_->flush() : std::nullopt; }

  // If the process has ended since the last call: how. All that it had said has been read then.
  std::optional<ReplicaEnd> take_end();
  // What it started lives on as long as `alive` says: a stop lets it finish; otherwise it is to be killed, and the
  // replica is gone when there is none of it left. REQUIRES winding_down().
  void wind_down(bool alive);

  // Asks for a checkpoint and an exit: SIGTERM, to the process only, since its workers must not die under it.
  void ask_to_stop();
  // The same, except that a program which is still starting, and would die of the signal before it can say that it
  // handles it, is left alone for now: to be called again.
  void ask_to_stop_when_ready();
  // Asks for a checkpoint without a stop, by SIGUSR1, if the process handles that; returns whether it does.
  bool ask_to_save();
  // Whether it is too young to handle what a program handles once it has loaded.
  bool is_starting() const;
  // Whether it has ended, or would make something of a request to stop other than to die of it.
  bool handles_stop() const { return ended() || process_.handles(SIGTERM); }
  // Says that all of its session was sent SIGKILL.
  void set_killed() noexcept { killed_ = true; }
  // Sends all of its session SIGKILL; `hung`: for its own failure.
  void kill(bool hung) noexcept;

  std::vector<std::string> last_lines() const { return last_lines_.get(); }

 private:
  enum class State { kRunning, kLingering, kSweeping, kGone };

  // Reads at most `limit` bytes. Closes the descriptor at its end.
  void read_from(Fd& fd, std::size_t limit, const std::function<void(std::string_view)>& sink);
  void read_all(std::size_t limit);
  void take_status(std::string_view bytes);
  void take_output(Stream stream, std::string_view text, bool ends);

  const LaunchPlan& plan_;
  int number_;
  int rank_;
  int restarts_;
  std::chrono::milliseconds start_up_;  // that a program may need before it handles SIGTERM
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
