// Shared by the tests of what summary writers write, and when.
#pragma once

#include <chrono>

namespace summary_writer_support {

// A value of flush_every with which the writer's thread does not write during a test.
inline constexpr std::chrono::hours kNever{1};

}  // namespace summary_writer_support
