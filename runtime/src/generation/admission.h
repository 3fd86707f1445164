// The source from which a newcomer loads its states.
#pragma once

#include <optional>

#include "checkpoint/snapshot.h"

namespace adaptdl::generation {

// In a process that is joining, waits until the members admit it and returns the states that they send, which arrive
// while they are read. Returns nullopt in any other process and on a second call. Throws Error if the supervisor cannot
// be reached.
std::optional<checkpoint::Snapshot> admission();

// Receives everything that the members still have to send. Throws CollectiveError if the members are lost.
void fetch_states();

// Like admission(), but for use after the members were lost while states were read: waits for the next generation.
checkpoint::Snapshot readmission();

}  // namespace adaptdl::generation
