// The agent is the process that shares the devices of this machine among the runs of one user.
//
// It listens at agent.sock in the user's runtime directory, which only that user can access. The first run that needs
// the agent starts it (see agent_client.h), and it exits by itself some time after its last run has gone. It keeps
// nothing that the runs could not send again: if it is killed, they continue with what they have, and start another.
//
// The file agent.lock beside the socket is locked by the running agent, and lists its runs. An agent that finds runs
// there whose processes are alive waits a moment for them to report what they hold, before it allocates anything.
#pragma once

#include <chrono>
#include <filesystem>

namespace adaptdl::sched {

// How long the agent waits for each event.
struct AgentTimes {
  std::chrono::milliseconds idle{10000};    // without any run, before it exits
  std::chrono::milliseconds settle{5000};   // for the runs of the previous agent to connect
  std::chrono::milliseconds silent{10000};  // for a connection to identify its run
  // How long a run whose connection was lost keeps its devices: as long as its guardian may need to end its processes,
  // and the run may need to reconnect.
  std::chrono::milliseconds vanished{3000};
};

// These files are in the runtime directory.
inline constexpr char kAgentSocket[] = "agent.sock", kAgentLock[] = "agent.lock";

// `adaptdl` is the agent, not a command, if its argv[0] is this name. Its argument is the runtime directory.
inline constexpr char kAgentName[] = "adaptdl-agent";

// Serves the runs of this runtime directory, which must exist and may differ from the one that this process would
// choose. Returns the exit code of the process once it is idle, or at once if another agent is running. Throws Error if
// the lock file or the socket cannot be opened.
int run_agent(const std::filesystem::path& directory, const AgentTimes& times = {});

}  // namespace adaptdl::sched
