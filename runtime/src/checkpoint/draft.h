// A state's files before they are written.
#pragma once

#include <memory>
#include <vector>

#include "checkpoint/state_writer.h"
#include "checkpoint/store.h"

namespace adaptdl::checkpoint {

// Returns a state's files, without the ranks' parts. The drafts refer to `state` and to a writer that is appended to
// `writers`; both must outlive the drafts. On failure, throws CheckpointError, naming the state.
std::vector<FileDraft> draft_state(const State& state, std::vector<std::unique_ptr<StateWriter>>& writers);

}  // namespace adaptdl::checkpoint
