// Determines what the ends of the replicas mean for the run: which one failed first, and the launcher's exit code.
//
// All functions are pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "local/replica_process.h"

namespace adaptdl::sched {

// A replica exits with this code after it has saved a checkpoint on request.
inline constexpr int kCheckpointedExit = 143;
// The launcher's exit code after a second Ctrl-C or a request to kill the run.
inline constexpr int kKilledExit = 130;
inline constexpr int kFailedExit = 1;

// How one replica ended.
struct ReplicaEnd {
  int rank = 0;
  ExitStatus status;
  bool asked = false;   // the launcher had sent it SIGTERM before
  bool killed = false;  // the launcher had sent it SIGKILL before
  bool out_of_memory = false;
  std::size_t place = 0;                // position in the order in which processes ended
  int number = 0;                       // of this start's replicas, in the order in which they were started
  bool hung = false;                    // the launcher killed it because the others lost it; this is its own failure
  std::vector<std::string> last_lines;  // of a failure
  std::string how;                      // the end in words, if the status does not describe it; else empty
};

// What happened to all replicas of one start, once none of them is left.
struct AttemptEnd {
  std::vector<ReplicaEnd> ends;  // in the order in which they ended
  bool killed_at_once = false;   // by a second Ctrl-C or a request to kill the run
  bool grace_expired = false;    // some were left when the grace ended
};

enum class Verdict {
  kDone,          // every replica exited with 0
  kCheckpointed,  // stopped on request, with a new checkpoint
  kNothingSaved,  // stopped on request, without a new checkpoint
  kGraceExpired,  // asked to stop, and killed because it did not end in time
  kKilled,        // killed at once, by a second Ctrl-C or a request
  kNotStarted,    // stopped while it waited for devices
  kFailed,        // a replica failed
};

struct Outcome {
  Verdict verdict = Verdict::kDone;
  int exit_code = 0;
  std::optional<ReplicaEnd> first_failure;  // set for kFailed
};

// Returns whether a replica that ended like this has failed by itself: it has neither finished nor checkpointed, and
// was not ended by a signal of the launcher's.
bool is_failure(const ReplicaEnd& end);

// Sorts ends that were noticed at the same moment by their places. Ends with equal places are put in the most likely
// order of cause and consequence: deaths by a signal, then failing exit codes, then the others; by rank among equals.
void order_simultaneous(std::vector<ReplicaEnd>& ends);

// Returns the outcome, given whether there is a new checkpoint.
//
// The first failure is the first end that is a failure, with two exceptions. A process that dies closes its connections
// before the kernel counts it as ended, so a peer may notice that and end in between. So if the peer's last lines
// report which replica it lost, and that replica failed as well, then that one failed first, unless the peer crashed.
// And a SIGKILL from outside comes before any exit code: it is never a consequence, and a process that holds a GPU may
// take longer to die of it than its peers take to notice. The exit code is the replica's own, or 128 + its signal. It
// is never 0, and never 143, which is reserved for a run that saved a checkpoint.
Outcome judge(const AttemptEnd& attempt, bool new_checkpoint);

// Returns a text such as "exited with code 3", "was killed by SIGSEGV (segmentation fault)", "hung and was killed" or
// "ran OUT OF MEMORY and was killed by SIGKILL".
std::string describe_end(const ReplicaEnd& end);

}  // namespace adaptdl::sched
