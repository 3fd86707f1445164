// Runs replicas of a job as real processes, for tests of their interaction.
#pragma once

#include <functional>
#include <vector>

namespace testing {

// Forks `count` processes with the environment of one job on a free loopback port, and runs `body(rank)` in each.
// Returns their exit codes by rank: 0 if the body returned, 1 if it threw (the error is printed), 128 + signal if a
// signal ended the process. Processes that are still running after two minutes are killed. REQUIRES that this process
// has not used LibTorch yet.
std::vector<int> run_replicas(int count, const std::function<void(int rank)>& body);

// Does the same, and throws unless all processes exit with 0.
void expect_replicas(int count, const std::function<void(int rank)>& body);

// Throws an exception with the condition's text unless `condition` holds. Use it in the body of a replica, where
// doctest's checks have no effect.
void expect(bool condition, const char* what);
#define EXPECT(...) ::testing::expect((__VA_ARGS__), #__VA_ARGS__)

}  // namespace testing
