#include "local/replica/outcome.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <regex>
#include <tuple>

namespace adaptdl::sched {
namespace {

// Returns whether the replica ended because the launcher or another process asked it to stop.
bool stopped(const ReplicaEnd& end) {
  return end.status == ExitStatus{.signalled = false, .code = kCheckpointedExit} ||
         (end.asked && end.status == ExitStatus{.signalled = true, .code = SIGTERM}) ||
         (end.killed && end.status.signalled);
}

int failure_code(const ExitStatus& status) {
  const int code = status.signalled ? 128 + status.code : status.code;
  return code == kCheckpointedExit ? kFailedExit : code;
}

bool killed_from_outside(const ReplicaEnd& end) {
  return !end.killed && end.status == ExitStatus{.signalled = true, .code = SIGKILL};
}

// Returns whether the status shows a memory error or a similar error, which is the program's own fault.
bool crashed(const ExitStatus& status) {
  constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
  return status.signalled && std::ranges::find(kSignals, status.code) != std::end(kSignals);
}

// Returns the rank of the replica that this one lost last, according to the runtime's error message
// (runtime/src/collective/{root,peer}.cc). Warnings are ignored, since they report losses that the replica survived.
std::optional<int> lost_replica(const ReplicaEnd& end) {
  if (crashed(end.status)) return {};
  static const std::regex lost("replica ([0-9]{1,6}) left the job ");
  for (auto line = end.last_lines.rbegin(); line != end.last_lines.rend(); ++line) {
    std::smatch match;
    if (line->find("warning: ") == std::string::npos && std::regex_search(*line, match, lost))
      return std::stoi(match[1]);
  }
  return {};
}

// Returns the failed replica that was lost first according to the others, or `failure` itself if they blame each other.
std::vector<ReplicaEnd>::const_iterator cause_of(std::vector<ReplicaEnd>::const_iterator failure,
                                                 const std::vector<ReplicaEnd>& ends) {
  auto cause = failure;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const auto lost = lost_replica(*cause);
    const auto next =
        std::ranges::find_if(ends, [&](const ReplicaEnd& end) { return end.rank == lost && is_failure(end); });
    if (!lost || next == ends.end()) return cause;
    cause = next;
  }
  return failure;
}

std::string signal_name(int signal_number) {
  const char* name = ::sigabbrev_np(signal_number);
  if (name == nullptr) return fmt::format("signal {}", signal_number);
  // These signals are well known, and their descriptions add nothing to their names.
  for (const int known : {SIGKILL, SIGTERM, SIGINT}) {
    if (signal_number == known) return fmt::format("SIG{}", name);
  }
  std::string meaning = ::sigdescr_np(signal_number);
  if (!meaning.empty()) meaning.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(meaning.front())));
  return fmt::format("SIG{} ({})", name, meaning);
}

}  // namespace

bool is_failure(const ReplicaEnd& end) { return !stopped(end) && (end.status.signalled || end.status.code != 0); }

void order_simultaneous(std::vector<ReplicaEnd>& ends) {
  std::ranges::stable_sort(ends, {}, [](const ReplicaEnd& end) {
    const int kind = !is_failure(end) ? 2 : end.status.signalled ? 0 : 1;
    return std::tuple(end.place, kind, end.rank);
  });
}

Outcome judge(const AttemptEnd& attempt, bool new_checkpoint) {
  if (attempt.killed_at_once) return {Verdict::kKilled, kKilledExit, {}};
  auto failure = std::ranges::find_if(attempt.ends, is_failure);
  if (failure != attempt.ends.end()) {
    failure = cause_of(failure, attempt.ends);
    const auto killed = std::ranges::find_if(attempt.ends, killed_from_outside);
    if (!failure->status.signalled && killed != attempt.ends.end()) failure = killed;
    return {Verdict::kFailed, failure_code(failure->status), *failure};
  }
  if (std::ranges::none_of(attempt.ends, stopped)) return {Verdict::kDone, 0, {}};
  if (attempt.grace_expired) return {Verdict::kGraceExpired, kFailedExit, {}};
  if (new_checkpoint) return {Verdict::kCheckpointed, kCheckpointedExit, {}};
  return {Verdict::kNothingSaved, kFailedExit, {}};
}

std::string describe_end(const ReplicaEnd& end) {
  if (end.hung) return "hung and was killed";
  if (!end.how.empty()) return end.how;
  const std::string how = end.status.signalled ? fmt::format("was killed by {}", signal_name(end.status.code))
                                               : fmt::format("exited with code {}", end.status.code);
  return end.out_of_memory ? fmt::format("ran OUT OF MEMORY and {}", how) : how;
}

}  // namespace adaptdl::sched
