// How a newcomer gets what it loads its states from.
#pragma once

#include <optional>

#include "checkpoint/snapshot.h"

namespace adaptdl::generation {

// In a process that is joining: waits until the members take it in, and gives the states that they sent. None in any
// other process. To be called once. Throws Error if the supervisor cannot be reached.
std::optional<checkpoint::Snapshot> admission();

}  // namespace adaptdl::generation
