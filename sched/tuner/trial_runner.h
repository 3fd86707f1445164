// The interface through which a search runs its trials: on this machine, in a cluster, or with a fake in tests.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "local/devices/run_share.h"
#include "local/record/run_status.h"
#include "tune/study/result.h"
#include "tune/study/space.h"

namespace adaptdl::sched::tune {

// How a trial's run ended.
struct TrialEnd {
  enum class How {
    kDone,        // the program ended successfully
    kStopped,     // it was stopped on request, and can continue from a checkpoint
    kKilled,      // the process that ran the program was killed; the trial can continue from its last checkpoint
    kNotStarted,  // the program could not be started, for a reason that does not depend on the trial
    kFailed,      // anything else, including a stop without a checkpoint
  };
  How how = How::kDone;
  std::string reason;  // one clause; empty for kDone
};

// The device-seconds that a run of a trial has used.
struct RunUsage {
  std::string run;            // distinguishes it from all other runs of the trial
  double device_seconds = 0;  // so far; replaces earlier figures for the same run
  bool is_last = false;       // the run has ended
};

struct TrialEvent {
  int number = 0;  // the trial's number
  std::variant<Result, TrialEnd, RunUsage> what;
};

class TrialRunner {
 public:
  virtual ~TrialRunner() = default;
  // Starts the trial with these values, fixed ones included, from its newest checkpoint if it has one. Throws Error if
  // that is impossible for a reason that does not depend on the trial. REQUIRES !is_active(number).
  virtual void start(int number, const Values& values) = 0;
  // Makes the trial save a checkpoint and end. Returns immediately.
  virtual void stop(int number) = 0;
  // Sets the share of the devices for the trial's run. The run starts with the default, and receives the share as soon
  // as it can be reached. REQUIRES is_active(number).
  virtual void set_share(int number, const RunShare& share) = 0;
  // Returns whether the trial was started and poll() has not returned its end yet.
  virtual bool is_active(int number) const = 0;
  // Returns the events since the last call, or some of them; the others follow. A trial's results precede its end. A
  // new TrialRunner returns all results and ends again, in the same order. The usage of a trial's run is reported from
  // time to time and before the trial's end; if the run was stopped while no search was running, no end follows. The
  // caller must store ends and last usages before the next call. Does not block.
  virtual std::vector<TrialEvent> poll() = 0;
  // Removes the data from which the trial could continue. REQUIRES !is_active(number).
  virtual void discard(int number) = 0;
  // Frees the memory of a trial that has ended and will never be started again. REQUIRES !is_active(number).
  virtual void release(int number) = 0;
};

// A runner with the additional functions that a search's process requires.
class SearchRunner : public TrialRunner {
 public:
  // Returns whether poll() left events that it can deliver immediately.
  virtual bool has_more() const noexcept = 0;
  // Completes the remaining work once the ends that poll() has delivered are stored. Returns whether all of the work is
  // done. Does not block.
  virtual bool settle() = 0;
  // Stops all trials, without requiring further calls to poll().
  virtual void stop_all() = 0;
  // Returns whether a trial is left after stop_all(). Does not block.
  virtual bool any_left() = 0;
  // Stops waiting for trials that were stopped. Unsaved progress may be lost.
  virtual void kill() = 0;
  // Returns the status of a trial's run, or nullopt if the trial has no run.
  virtual std::optional<RunStatus> status(int number) const = 0;
};

}  // namespace adaptdl::sched::tune
