// Starting the agent as a process that nobody waits for.
//
// Threading: may be called while other threads run.
#pragma once

#include <filesystem>

namespace adaptdl::sched {

// Starts `program` as the agent of this runtime directory: in a session of its own, without the caller's descriptors
// and signal settings, and not as a child of the caller. Returns once it was forked; only its socket shows whether it
// has started.
void start_agent(const std::filesystem::path& program, const std::filesystem::path& directory) noexcept;

}  // namespace adaptdl::sched
