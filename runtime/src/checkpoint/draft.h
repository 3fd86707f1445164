// What a state saves, as files that are still to be written.
#pragma once

#include <memory>
#include <vector>

#include "checkpoint/state_writer.h"
#include "checkpoint/store.h"

namespace adaptdl::checkpoint {

// The files of a state, without the parts of ranks. They refer to a writer that is added to `writers`, and to the
// state. Throws CheckpointError, which names the state.
std::vector<FileDraft> draft_state(const State& state, std::vector<std::unique_ptr<StateWriter>>& writers);

}  // namespace adaptdl::checkpoint
