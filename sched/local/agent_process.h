// Starting the agent as a process that nobody waits for.
//
// Threading: may be called while other threads run.
#pragma once

#include <filesystem>

namespace adaptdl::sched {

// Starts `program` as the agent: in a session of its own, without the caller's descriptors and signal settings, as
// nobody's child. Returns once it was forked; whether it comes up, only its socket can tell.
void start_agent(const std::filesystem::path& program) noexcept;

}  // namespace adaptdl::sched
