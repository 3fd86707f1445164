// A Replica is a replica within one start of the run: its process, its output, and how it ends. A ReplicaHost starts
// it.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "local/base/launch_observer.h"
#include "local/base/launch_plan.h"
#include "local/base/lines.h"
#include "local/replica/outcome.h"
#include "local/replica/replica_environment.h"
#include "local/replica/replica_log.h"

namespace adaptdl::sched {

class Replica {
 public:
  using OnReport = std::function<void(const Replica&, const nlohmann::json&)>;

  virtual ~Replica() = default;
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Returns the number that identifies the replica within this start.
  int number() const noexcept { return number_; }
  // Returns the current rank or, for a newcomer, the rank that it should get.
  int rank() const noexcept { return rank_; }
  // Sets the rank under which the replica's output is shown and logged. Returns a warning if a log cannot be written.
  std::optional<std::string> set_rank(int rank);
  // Writes the output that is not in the log file yet. Returns a warning if that failed.
  std::optional<std::string> flush_log() { return log_ ? log_->flush() : std::nullopt; }

  // Returns whether the process has ended and take_end() has returned how it ended.
  virtual bool ended() const = 0;
  // Returns whether ended() is true and no process that the replica started is left.
  virtual bool gone() const = 0;
  // Returns whether a process of the replica has not ended kKillWait after SIGKILL, because it is blocked in the
  // kernel.
  bool is_unkillable() const {
    return !gone() && killed_since_ && std::chrono::steady_clock::now() - *killed_since_ >= kKillWait;
  }
  // Returns how the process ended if it has ended since the last call, otherwise nullopt. When it returns an end, all
  // output of the process has been read.
  virtual std::optional<ReplicaEnd> take_end() = 0;

  // Asks the replica to checkpoint and exit, with SIGTERM.
  virtual void ask_to_stop() = 0;
  // Like ask_to_stop(), but does nothing while the program is still starting and would be killed by the signal. The
  // caller must then call this function again later.
  void ask_to_stop_when_ready() {
    if (!is_starting()) ask_to_stop();
  }
  // Asks the replica to checkpoint without stopping, with SIGUSR1, if the process handles that signal. Returns whether
  // the process handles the signal.
  virtual bool ask_to_save() = 0;
  virtual bool handles_save() const = 0;
  // Returns whether the process has just started and does not handle SIGTERM yet.
  virtual bool is_starting() const = 0;
  // Returns whether the process has ended, or handles SIGTERM and is therefore not killed by a request to stop.
  virtual bool handles_stop() const = 0;
  // Sends SIGKILL to the process and to every process that it started. If `hung` is true, the end of the process is
  // treated as the replica's own failure.
  virtual void kill(bool hung) = 0;

 protected:
  // Throws Error if its log cannot be written. The plan and the observer must outlive the replica.
  Replica(const LaunchPlan& plan, int number, const ReplicaPlace& place, LaunchObserver& observer, OnReport on_report);

  // Logs and shows a line, or a piece of one (see LaunchObserver::line).
  void take_output(Stream stream, std::string_view text, bool ends);
  // Passes on a report that the replica wrote to its status descriptor.
  void take_report(const nlohmann::json& report) { on_report_(*this, report); }
  // Records that SIGKILL is sent to the replica's processes from now on.
  void note_kill() {
    if (!killed_since_) killed_since_ = std::chrono::steady_clock::now();
  }
  std::vector<std::string> last_lines() const { return last_lines_.get(); }

  const LaunchPlan& plan_;
  LaunchObserver& observer_;

 private:
  int number_;
  int rank_;
  int restarts_;
  OnReport on_report_;
  std::optional<std::chrono::steady_clock::time_point> killed_since_;
  std::optional<ReplicaLog> log_;
  LastLines last_lines_;
};

}  // namespace adaptdl::sched
