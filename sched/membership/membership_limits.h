// Limits on how long a job waits for its replicas, and on how often it tries again.
#pragma once

#include <chrono>

namespace adaptdl::sched {

// How long the other replicas may take to end after one has failed. If the grace period is shorter, it applies instead.
// Together with the time that a kill takes, the limit is well below 5 s.
inline constexpr std::chrono::milliseconds kFailureGrace = std::chrono::seconds(2);
// The pause before the first restart. The pause doubles after each further failure, up to kMaxBackOff.
inline constexpr std::chrono::milliseconds kFirstBackOff = std::chrono::milliseconds(500);
inline constexpr std::chrono::milliseconds kMaxBackOff = std::chrono::seconds(10);
// After this long without a failure, the next pause is kFirstBackOff again.
inline constexpr std::chrono::milliseconds kBackOffMemory = std::chrono::minutes(1);
// How long newcomers may take to load before the job continues with those that have loaded. Even the slowest programs
// start in less time, and the job trains as before while newcomers load.
inline constexpr std::chrono::milliseconds kJoinLimit = std::chrono::seconds(60);
// The number of consecutive newcomer failures after which no more newcomers are started.
inline constexpr int kNewcomerTries = 3;
// How long the other members may take to report that their group broke after the first member reported it. Members that
// do not report it in time are considered hung. The limit is longer than the differences between the timeouts of the
// members' collective calls.
inline constexpr std::chrono::milliseconds kHangWait = std::chrono::seconds(5);
// How long a process may take to end after SIGKILL. A process that takes longer is blocked in the kernel, for example
// by its GPU, and is given up.
inline constexpr std::chrono::milliseconds kKillWait = std::chrono::seconds(10);
// How long a program may take after its first progress to report that it can follow generations.
inline constexpr std::chrono::milliseconds kHintWait = std::chrono::seconds(2);
// How long a program that reports no progress may take, after its start, to report that it can follow generations. Most
// programs load in less time; a program that takes longer is rescaled by a restart, which may be unnecessary.
inline constexpr std::chrono::milliseconds kSilence = std::chrono::seconds(60);

}  // namespace adaptdl::sched
