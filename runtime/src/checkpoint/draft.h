// The files of a state before they are written.
#pragma once

#include <memory>
#include <vector>

#include "checkpoint/state_writer.h"
#include "checkpoint/store.h"

namespace adaptdl::checkpoint {

// Returns the files of a state, without the parts of ranks. They refer to `state` and to a writer that is appended to
// `writers`; both must outlive them. Throws CheckpointError that names the state.
std::vector<FileDraft> draft_state(const State& state, std::vector<std::unique_ptr<StateWriter>>& writers);

}  // namespace adaptdl::checkpoint
