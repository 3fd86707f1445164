// The agent: the process that shares the devices of this machine among the runs of one user.
//
// It listens at agent.sock in the user's runtime directory, where only that user reaches it. The first run that needs
// it starts it (see agent_client.h), and it ends by itself when its last run has gone for kIdleTime. It keeps nothing
// that the runs could not tell it again: when it is killed, they go on with what they have, and start another.
//
// The file agent.lock beside the socket is locked by the one agent there is, and names its runs. An agent that
// finds some whose processes are alive waits a moment for them to say what they hold, before it gives out anything.
#pragma once

#include <chrono>

namespace adaptdl::sched {

// How long an agent stays without a run.
inline constexpr std::chrono::seconds kIdleTime{10};
// How long a new one waits for the runs of the one before it.
inline constexpr std::chrono::seconds kSettleTime{5};
// How long the devices of a run that vanished without a word are kept: as long as its guardian may need to end its
// processes, and a run that lost its connection to come back.
inline constexpr std::chrono::seconds kVanishedTime{3};

// In the runtime directory.
inline constexpr char kAgentSocket[] = "agent.sock", kAgentLock[] = "agent.lock";

// What its argv[0] is: `adaptdl` under this name is the agent, and no command.
inline constexpr char kAgentName[] = "adaptdl-agent";

// Returns the exit code of the process when it is idle, or at once where another agent is there. Throws Error if the
// system refuses the socket.
int run_agent();

}  // namespace adaptdl::sched
