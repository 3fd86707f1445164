// Replicas of a job as real processes, for tests of what they do together.
#pragma once

#include <functional>
#include <vector>

namespace testing {

// Forks `count` processes with the environment of one job on a free port of the loopback, and runs `body(rank)` in
// each. Returns their exit codes by rank: 0 when the body returned, 1 when it threw (the error is printed), 128 +
// signal when one ended it. Processes that still run after two minutes are killed. REQUIRES that this process has not
// used LibTorch yet.
std::vector<int> run_replicas(int count, const std::function<void(int rank)>& body);

// The same, of which all must end well: throws otherwise.
void expect_replicas(int count, const std::function<void(int rank)>& body);

// Throws with the source line unless `condition` holds: for use in the body of a replica, where doctest's checks do not
// count.
void expect(bool condition, const char* what);
#define EXPECT(...) ::testing::expect((__VA_ARGS__), #__VA_ARGS__)

}  // namespace testing
