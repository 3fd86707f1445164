// The agent: the process that shares the devices of this machine among the runs of one user.
//
// It listens at agent.sock in the user's runtime directory, where only that user reaches it. The first run that needs
// it starts it (see agent_client.h), and it ends by itself when its last run has gone for a while. It keeps nothing
// that the runs could not tell it again: when it is killed, they go on with what they have, and start another.
//
// The file agent.lock beside the socket is locked by the one agent there is, and names its runs. An agent that
// finds some whose processes are alive waits a moment for them to say what they hold, before it gives out anything.
#pragma once

#include <chrono>
#include <filesystem>

namespace adaptdl::sched {

// What an agent waits for, and how long.
struct AgentTimes {
  std::chrono::milliseconds idle{10000};    // without a run, before it ends
  std::chrono::milliseconds settle{5000};   // for the runs of the agent before it
  std::chrono::milliseconds silent{10000};  // for a connection to say whose it is
  // Keeps the devices of a run that vanished without a word: as long as its guardian may need to end its processes,
  // and a run that lost its connection to come back.
  std::chrono::milliseconds vanished{3000};
};

// In the runtime directory.
inline constexpr char kAgentSocket[] = "agent.sock", kAgentLock[] = "agent.lock";

// What its argv[0] is: `adaptdl` under this name is the agent, and no command. Its argument is the runtime directory.
inline constexpr char kAgentName[] = "adaptdl-agent";

// Serves the runs of this runtime directory, which exists: it may not be the one that this process would choose.
// Returns the exit code of the process when it is idle, or at once if another agent is there. Throws Error if the
// system refuses the socket.
int run_agent(const std::filesystem::path& directory, const AgentTimes& times = {});

}  // namespace adaptdl::sched
