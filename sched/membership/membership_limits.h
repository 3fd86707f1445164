// How long a job waits for its replicas, and how often it tries.
#pragma once

#include <chrono>

namespace adaptdl::sched {

// How long the others may take to end after one failed; never longer than the grace. Together with the time that a kill
// takes it stays well below 5 s.
inline constexpr std::chrono::milliseconds kFailureGrace = std::chrono::seconds(2);
// Pause before the first restart; it doubles up to the longest.
inline constexpr std::chrono::milliseconds kFirstBackOff = std::chrono::milliseconds(500);
inline constexpr std::chrono::milliseconds kLongestBackOff = std::chrono::seconds(10);
// After so long without a failure the next pause is the first again.
inline constexpr std::chrono::milliseconds kBackOffMemory = std::chrono::minutes(1);
// How long newcomers may take to load before the job continues with those that have loaded. Longer than the slowest
// program takes to start; until then, the job trains as before.
inline constexpr std::chrono::milliseconds kJoinLimit = std::chrono::seconds(60);
// How often in a row newcomers may fail before no more are started.
inline constexpr int kNewcomerTries = 3;
// How long the other members may take to report that their group broke after the first one did. Those that do not are
// considered hung. Longer than the differences between the timeouts of their collective calls.
inline constexpr std::chrono::milliseconds kHangWait = std::chrono::seconds(5);
// How long after its first progress a program may take to report that it can follow generations.
inline constexpr std::chrono::milliseconds kHintWait = std::chrono::seconds(2);
// The same after its start, for a program that reports no progress. Longer than most take to load; a program that takes
// longer is rescaled by a restart, which it would not need.
inline constexpr std::chrono::milliseconds kSilence = std::chrono::seconds(60);

}  // namespace adaptdl::sched
