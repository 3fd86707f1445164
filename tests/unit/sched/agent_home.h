// A separate runtime directory for tests that start the agent.
#pragma once

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "local/devices/agent.h"
#include "temporary_directory.h"

namespace testing {

// Sets up a runtime directory whose agents use these times. The destructor kills the agents.
struct AgentHome {
  explicit AgentHome(const adaptdl::sched::AgentTimes& times = {}) {
    ::setenv("XDG_RUNTIME_DIR", directory.path().c_str(), 1);
    const std::string text = fmt::format("{} {} {} {}", times.idle.count(), times.settle.count(), times.silent.count(),
                                         times.vanished.count());
    ::setenv("AGENT_TIMES", text.c_str(), 1);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  // On a busy machine, some agents may not have found out yet that another agent serves their run.
  ~AgentHome() {
    std::ifstream children(fmt::format("/proc/self/task/{}/children", ::getpid()));
    for (int pid = 0; children >> pid;) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
    ::unsetenv("XDG_RUNTIME_DIR");
  }
  std::filesystem::path socket() const { return directory.path() / "adaptdl" / adaptdl::sched::kAgentSocket; }

  TemporaryDirectory directory;
  std::set<int> agents;  // process IDs, which the test adds
};

}  // namespace testing
