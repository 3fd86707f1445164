// The checkpoint that this process loads from.
#pragma once

#include <filesystem>

namespace adaptdl::checkpoint {

// Called when a new checkpoint was committed: warns once about states of the loaded checkpoint that the program never
// loaded, and closes the files of those that it did.
void note_saved();

// Called once in a replica that joins a running job: receives all that the members still send, because they resume
// training only after that. States that are created later are loaded from it. Throws as load_state does.
void take_remaining_states();

// Returns whether this process has loaded a checkpoint from `directory`.
bool loaded_from(const std::filesystem::path& directory);

}  // namespace adaptdl::checkpoint
