// A Replica is one replica over one start: its process, its output, and how it ends. Its ReplicaHost started it.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "local/launch_observer.h"
#include "local/launch_plan.h"
#include "local/lines.h"
#include "local/outcome.h"
#include "local/replica_environment.h"
#include "local/replica_log.h"

namespace adaptdl::sched {

class Replica {
 public:
  using OnReport = std::function<void(const Replica&, const nlohmann::json&)>;

  virtual ~Replica() = default;
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Distinguishes it from the other replicas of this start.
  int number() const noexcept { return number_; }
  // Returns its current rank; for a newcomer, the rank that it should get.
  int rank() const noexcept { return rank_; }
  // Sets the rank under which its lines are shown and logged. Returns a warning if a log cannot be written.
  std::optional<std::string> set_rank(int rank);
  // Appends what it wrote to its log. Returns a warning if that failed.
  std::optional<std::string> flush_log() { return log_ ? log_->flush() : std::nullopt; }

  // Returns whether its process has ended and take_end() has returned how.
  virtual bool ended() const = 0;
  // Returns whether, in addition, nothing that it started is left.
  virtual bool gone() const = 0;
  // Returns how the process ended, if it has ended since the last call. All of its output has been read by then.
  virtual std::optional<ReplicaEnd> take_end() = 0;

  // Asks for a checkpoint and an exit, by SIGTERM.
  virtual void ask_to_stop() = 0;
  // Does the same, but nothing while the program is still starting and would die of the signal. It must then be called
  // again later.
  void ask_to_stop_when_ready() {
    if (!is_starting()) ask_to_stop();
  }
  // Asks for a checkpoint without a stop, by SIGUSR1, if the process handles that signal. Returns whether it does.
  virtual bool ask_to_save() = 0;
  virtual bool handles_save() const = 0;
  // Returns whether it started only just now and does not handle SIGTERM yet.
  virtual bool is_starting() const = 0;
  // Returns whether it has ended, or does not die of a request to stop.
  virtual bool handles_stop() const = 0;
  // Sends SIGKILL to the process and to everything that it started. If `hung`, its death counts as its own failure.
  virtual void kill(bool hung) = 0;

 protected:
  // Throws Error if its log cannot be written. The plan and the observer must outlive the replica.
  Replica(const LaunchPlan& plan, int number, const ReplicaPlace& place, LaunchObserver& observer, OnReport on_report);

  // Logs and shows a line, or a piece of one (see LaunchObserver::line).
  void take_output(Stream stream, std::string_view text, bool ends);
  // Passes on an object that it wrote to its status descriptor.
  void take_report(const nlohmann::json& report) { on_report_(*this, report); }
  std::vector<std::string> last_lines() const { return last_lines_.get(); }

  const LaunchPlan& plan_;
  LaunchObserver& observer_;

 private:
  int number_;
  int rank_;
  int restarts_;
  OnReport on_report_;
  std::optional<ReplicaLog> log_;
  LastLines last_lines_;
};

}  // namespace adaptdl::sched
