// The checkpoint that this process loads from.
#pragma once

#include <filesystem>

namespace adaptdl::checkpoint {

// Called when a new checkpoint is committed in `directory`: warns once of states of the loaded checkpoint that the
// program never loaded, and closes the files of those it did.
void note_saved();

// In a replica that joins a running job, once: takes what the members still send, of which they are to be free before
// training goes on. States that are made later are loaded from it. Throws as load_state.
void take_remaining_states();

// Whether this process has seen `directory` hold a checkpoint, by loading from it.
bool loaded_from(const std::filesystem::path& directory);

}  // namespace adaptdl::checkpoint
