// The source from which a newcomer loads its states.
#pragma once

#include <optional>

#include "checkpoint/snapshot.h"

namespace adaptdl::generation {

// In a process that is joining: waits until the members admit it, and returns the states that they send, which arrive
// while they are read. Returns nullopt in any other process, and on a second call. Throws Error if the supervisor
// cannot be reached.
std::optional<checkpoint::Snapshot> admission();

// Receives all that the members still send. Throws CollectiveError if they are lost.
void fetch_states();

// Like admission(), after the members were lost while states were read: waits for the next generation.
checkpoint::Snapshot readmission();

}  // namespace adaptdl::generation
