// The agent with times that a test chooses: $AGENT_TIMES contains the members of AgentTimes in order, in milliseconds.
#include <cstdlib>
#include <sstream>

#include "local/devices/agent.h"

int main(int, char** argv) {
  std::istringstream text(std::getenv("AGENT_TIMES"));
  long idle = 0, settle = 0, silent = 0, vanished = 0;
  text >> idle >> settle >> silent >> vanished;
  using std::chrono::milliseconds;
  return adaptdl::sched::run_agent(
      argv[1], {milliseconds(idle), milliseconds(settle), milliseconds(silent), milliseconds(vanished)});
}
