// What the ends of the replicas mean for the run: who failed first, and which exit code the launcher gives.
//
// Pure functions of what was observed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "local/replica_process.h"

namespace adaptdl::sched {

// A replica exits with this after it checkpointed on request.
inline constexpr int kCheckpointedExit = 143;
// The launcher's exit code after a second Ctrl-C.
inline constexpr int kKilledExit = 130;
inline constexpr int kFailedExit = 1;

// How one replica ended.
struct ReplicaEnd {
  int rank = 0;
  ExitStatus status;
  bool asked = false;   // the launcher had sent it SIGTERM before
  bool killed = false;  // the launcher had sent it SIGKILL before
  bool out_of_memory = false;
  std::size_t place = 0;                // in the order in which processes ended
  int number = 0;                       // of this start's replicas, counted in the order in which they were started
  bool hung = false;                    // the launcher killed it because the others lost it, which is its failure
  std::vector<std::string> last_lines;  // of a failure
};

// What happened to all replicas of one start, once none of them is left.
struct AttemptEnd {
  std::vector<ReplicaEnd> ends;  // in the order in which they ended
  bool killed_at_once = false;   // a second Ctrl-C
  bool grace_expired = false;    // some were still there when the grace period ended
};

enum class Verdict {
  kDone,          // every replica exited with 0
  kCheckpointed,  // stopped on request, and a new checkpoint is there
  kNothingSaved,  // stopped on request, without a new checkpoint
  kGraceExpired,  // asked to stop, and killed because it did not in time
  kKilled,        // killed at once, on a second Ctrl-C
  kNotStarted,    // stopped while it waited for devices
  kFailed,        // a replica failed
};

struct Outcome {
  Verdict verdict = Verdict::kDone;
  int exit_code = 0;
  std::optional<ReplicaEnd> first_failure;  // with kFailed
};

// Whether a replica that ended so has failed by itself: not done, not checkpointed, and not by a signal of the
// launcher's.
bool is_failure(const ReplicaEnd& end);

// Puts the ends that were noticed at the same moment in the order of their places. Where those are equal, in the most
// likely order of cause and consequence: deaths by a signal, then failing exit codes, then the others; by rank among
// equals.
void order_simultaneous(std::vector<ReplicaEnd>& ends);

// The outcome, given whether a new checkpoint is there.
//
// The first failure is the first end that is one, with two exceptions. A process that dies closes its connections
// before the kernel counts it as ended, so a peer may notice and end in between: if its last lines say which replica it
// lost, and that one failed as well, that one came first, unless this one crashed. And a SIGKILL from outside comes
// before any exit code, since it is never a consequence, and a process that holds a GPU may take longer to die of it
// than its peers to notice. The exit code is the replica's own, or 128 + its signal; but never 143, which is kept for a
// checkpoint that is there, nor 0.
Outcome judge(const AttemptEnd& attempt, bool new_checkpoint);

// "exited with code 3", "was killed by SIGSEGV (segmentation fault)", "ran out of memory (killed by SIGKILL)".
std::string describe_end(const ReplicaEnd& end);

}  // namespace adaptdl::sched
