// The checkpoint from which this process loads.
#pragma once

#include <filesystem>

namespace adaptdl::checkpoint {

// Called when a new checkpoint has been committed. Warns once about states in the loaded checkpoint that the program
// never loaded, and closes the files of the states that it did load.
void note_saved();

// Called once in a replica that joins a running job: receives everything that the members still have to send, because
// they resume training only after they have sent it. States that are created later are loaded from the received data.
// Throws the same errors as load_state.
void take_remaining_states();

// Returns whether this process has loaded a checkpoint from `directory`.
bool loaded_from(const std::filesystem::path& directory);

}  // namespace adaptdl::checkpoint
