// Determines the outcome of a run from how its replicas ended: which one failed first, and the launcher's exit code.
//
// All functions are pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "local/replica/replica_process.h"

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
  bool asked = false;   // the launcher had already sent it SIGTERM
  bool killed = false;  // the launcher had already sent it SIGKILL
  bool out_of_memory = false;
  std::size_t place = 0;                // position in the order in which processes ended
  int number = 0;                       // the replica's number, which is unique within this start
  bool hung = false;                    // killed because the others lost contact with it; treated as its own failure
  bool lost = false;                    // its node was lost
  std::vector<std::string> last_lines;  // last lines of output, for a failure
  std::string how;                      // describes the end if the status does not; otherwise empty
};

// How all replicas of one start ended.
struct AttemptEnd {
  std::vector<ReplicaEnd> ends;  // in the order in which they ended
  bool killed_at_once = false;   // by a second Ctrl-C or a request to kill the run
  bool grace_expired = false;    // some replicas were still running when the grace period ended
};

enum class Verdict {
  kDone,          // every replica exited with 0
  kCheckpointed,  // stopped on request, with a new checkpoint
  kNothingSaved,  // stopped on request, without a new checkpoint
  kGraceExpired,  // asked to stop, and killed because it did not end in time
  kKilled,        // killed at once, by a second Ctrl-C or a request
  kNotStarted,    // stopped while it was waiting for devices
  kFailed,        // a replica failed
};

struct Outcome {
  Verdict verdict = Verdict::kDone;
  int exit_code = 0;
  std::optional<ReplicaEnd> first_failure;  // set for kFailed
};

// Returns whether the end is the replica's own failure: it neither finished nor checkpointed, and no signal from the
// launcher ended it.
bool is_failure(const ReplicaEnd& end);

// Sorts ends that were noticed at the same time by their places. Ends with equal places are sorted into the most likely
// order of cause and effect: deaths by a signal, then failures by exit code, then the others, each group by rank.
void order_simultaneous(std::vector<ReplicaEnd>& ends);

// Returns the outcome. `new_checkpoint` is true if a new checkpoint was saved.
//
// The first failure is the first end that is a failure, with two exceptions. First, a dying process closes its
// connections before the kernel reports its end, so a peer may notice the loss and end earlier. If a peer's last lines
// report which replica it lost, and that replica failed as well, the lost replica failed first, unless the peer
// crashed. Second, a SIGKILL from outside precedes any exit code: it is never a consequence of another failure, and a
// process that holds a GPU may take longer to die than its peers take to notice the loss. The exit code is the failed
// replica's own, or 128 plus its signal number. It is never 0 and never 143, which is reserved for a run that saved a
// checkpoint.
Outcome judge(const AttemptEnd& attempt, bool new_checkpoint);

// Returns a text such as "exited with code 3", "was killed by SIGSEGV (segmentation fault)", "hung and was killed" or
// "ran OUT OF MEMORY and was killed by SIGKILL".
std::string describe_end(const ReplicaEnd& end);

}  // namespace adaptdl::sched
