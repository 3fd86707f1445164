// The interface through which a search runs its trials: on this machine, in a cluster, or with a fake in tests.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "local/run_share.h"
#include "local/run_status.h"
#include "tune/result.h"
#include "tune/space.h"

namespace adaptdl::sched::tune {

// How a trial's run ended.
struct TrialEnd {
  enum class How {
    kDone,        // the program ended by itself, successfully
    kStopped,     // on request, and it can continue from a checkpoint
    kKilled,      // the process that runs the program was killed; it can continue from the last checkpoint
    kNotStarted,  // the program could not be started, for a reason that does not depend on the trial
    kFailed,      // anything else, including a stop without a checkpoint
  };
  How how = How::kDone;
  std::string reason;  // one clause; empty for kDone
};

// The device-seconds that a run of a trial has used.
struct RunUsage {
  std::string run;            // distinguishes it from all other runs of the trial
  double device_seconds = 0;  // so far; it replaces earlier figures of the same run
  bool is_last = false;       // the run has ended
};

struct TrialEvent {
  int number = 0;  // of the trial
  std::variant<Result, TrialEnd, RunUsage> what;
};

class TrialRunner {
 public:
  virtual ~TrialRunner() = default;
  // Starts the trial with these values, fixed ones included, from its newest checkpoint if it has one. Throws Error if
  // that is impossible for a reason that does not depend on the trial. REQUIRES !is_active(number).
  virtual void start(int number, const Values& values) = 0;
  // Makes the trial save a checkpoint and end. Returns at once.
  virtual void stop(int number) = 0;
  // Sets the share of the devices that the run of the trial should have. The run receives it as soon as it can be
  // reached, and has the default when it starts. REQUIRES is_active(number).
  virtual void set_share(int number, const RunShare& share) = 0;
  // Returns whether the trial was started and its end was not returned by poll() yet.
  virtual bool is_active(int number) const = 0;
  // Returns what happened since the last call, or a part of it. The results of a trial come before its end; a new
  // TrialRunner delivers all of them again in the same order. The usage of its run comes from time to time and before
  // its end, or without an end if the run was stopped while no search was running. By the next call, ends and last
  // usages must have been stored. Does not block.
  virtual std::vector<TrialEvent> poll() = 0;
  // Removes what is kept to continue the trial. REQUIRES !is_active(number).
  virtual void discard(int number) = 0;
  // Frees the memory of a trial that has ended and is never started again. REQUIRES !is_active(number).
  virtual void release(int number) = 0;
};

// A runner with the functions that the process of a search needs in addition.
class SearchRunner : public TrialRunner {
 public:
  // Returns whether poll() left something to deliver at once.
  virtual bool has_more() const noexcept = 0;
  // Finishes what is left to do once the ends that poll() has delivered are stored. Returns whether all of it is done.
  // Does not block.
  virtual bool settle() = 0;
  // Stops all trials; no poll() is needed for that.
  virtual void stop_all() = 0;
  // Returns whether a trial is left after stop_all(). Does not block.
  virtual bool any_left() = 0;
  // Stops waiting for trials that were stopped. What was not saved yet may be lost.
  virtual void kill() = 0;
  // Returns the status of the run of a trial, or none if it has no run.
  virtual std::optional<RunStatus> status(int number) const = 0;
};

}  // namespace adaptdl::sched::tune
