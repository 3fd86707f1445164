// Limits on how long a job waits for its replicas, and on how often it tries again.
#pragma once

#include <chrono>

namespace adaptdl::sched {

// How long the other replicas may take to end after one has failed. The grace applies instead if it is shorter.
// Together with the time that a kill takes, this stays well below 5 s.
inline constexpr std::chrono::milliseconds kFailureGrace = std::chrono::seconds(2);
// The pause before the first restart. It doubles after each further failure, up to kLongestBackOff.
inline constexpr std::chrono::milliseconds kFirstBackOff = std::chrono::milliseconds(500);
inline constexpr std::chrono::milliseconds kLongestBackOff = std::chrono::seconds(10);
// After this long without a failure, the next pause is kFirstBackOff again.
inline constexpr std::chrono::milliseconds kBackOffMemory = std::chrono::minutes(1);
// How long newcomers may take to load before the job continues with those that have loaded. This is longer than the
// slowest program takes to start; until then, the job trains as before.
inline constexpr std::chrono::milliseconds kJoinLimit = std::chrono::seconds(60);
// How many consecutive failures of newcomers there may be before no more are started.
inline constexpr int kNewcomerTries = 3;
// How long the other members may take to report that their group broke after the first one did. Those that do not
// report it are considered hung. This is longer than the differences between the timeouts of their collective calls.
inline constexpr std::chrono::milliseconds kHangWait = std::chrono::seconds(5);
// How long a program may take after its first progress to report that it can follow generations.
inline constexpr std::chrono::milliseconds kHintWait = std::chrono::seconds(2);
// The same limit after the start of a program that reports no progress. It is longer than most programs take to load;
// one that takes longer is rescaled by a restart that it may not need.
inline constexpr std::chrono::milliseconds kSilence = std::chrono::seconds(60);

}  // namespace adaptdl::sched
