// The source from which a newcomer loads its states, implemented in generation/generation.cc.
#pragma once

#include <optional>

#include "checkpoint/snapshot.h"

namespace adaptdl::generation {

// In a process that is joining, waits until the members admit it, and returns the states that the members send; the
// states arrive while the caller is reading them. Returns nullopt in any other process and on a second call. Throws
// Error if the supervisor cannot be reached.
std::optional<checkpoint::Snapshot> admission();

// Receives everything that the members still have to send. Throws CollectiveError if the members are lost.
void fetch_states();

// Like admission(), but waits for the next generation. Must be called if the members were lost while their states were
// being read.
checkpoint::Snapshot readmission();

}  // namespace adaptdl::generation
