// How a newcomer gets what it loads its states from.
#pragma once

#include <optional>

#include "checkpoint/snapshot.h"

namespace adaptdl::generation {

// In a process that is joining: waits until the members take it in, and gives the states that they send, which come
// while they are read. None in any other process, and at a second call. Throws Error if the supervisor cannot be
// reached.
std::optional<checkpoint::Snapshot> admission();

// Takes all that they still send. Throws CollectiveError if they are lost.
void fetch_states();

// The same as admission after the members were lost while states were read: from the next generation.
checkpoint::Snapshot readmission();

}  // namespace adaptdl::generation
