// Starts the agent as a process that is not a child of its caller.
//
// Threading: start_agent() may be called while other threads run.
#pragma once

#include <filesystem>

namespace adaptdl::sched {

// Starts `program` as the agent for this runtime directory, in its own session and without the caller's descriptors or
// signal settings. Returns once the agent has been forked; only its socket shows whether it has started.
void start_agent(const std::filesystem::path& program, const std::filesystem::path& directory) noexcept;

}  // namespace adaptdl::sched
