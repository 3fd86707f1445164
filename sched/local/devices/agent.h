// The agent is the process that shares the devices of this machine among the runs of one user.
//
// The agent listens on agent.sock in the user's runtime directory, which only that user can access. The first run that
// needs the agent starts it (see agent_client.h), and the agent exits some time after its last run has left. The agent
// has no state that the runs could not send again: if it is killed, the runs keep their devices and start another
// agent.
//
// The running agent locks the file agent.lock next to the socket, and lists its runs there. If a new agent finds runs
// there whose processes are alive, it waits a moment for these runs to report the devices that they hold before it
// allocates any.
#pragma once

#include <chrono>
#include <filesystem>

namespace adaptdl::sched {

// How long the agent waits for each event.
struct AgentTimes {
  std::chrono::milliseconds idle{10000};    // with no runs, before it exits
  std::chrono::milliseconds settle{5000};   // for the runs of the previous agent to connect
  std::chrono::milliseconds silent{10000};  // for a connection to identify its run
  // How long a run keeps its devices after its connection is lost: long enough for its guardian to end its processes,
  // and for the run to reconnect.
  std::chrono::milliseconds vanished{3000};
};

// These files are in the runtime directory.
inline constexpr char kAgentSocket[] = "agent.sock", kAgentLock[] = "agent.lock";

// If argv[0] is this name, `adaptdl` runs as the agent instead of as a command. Its argument is the runtime directory.
inline constexpr char kAgentName[] = "adaptdl-agent";

// Serves the runs that use this runtime directory, which must exist and may differ from the one that this process would
// choose. Returns the process's exit code once the agent has been idle for times.idle, or immediately if another agent
// is running. Throws Error if the lock file or the socket cannot be opened.
int run_agent(const std::filesystem::path& directory, const AgentTimes& times = {});

}  // namespace adaptdl::sched
