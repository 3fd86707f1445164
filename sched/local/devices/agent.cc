#include "local/devices/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"
#include "local/base/runtime_directory.h"
#include "local/devices/agent_server.h"

namespace adaptdl::sched {

int run_agent(const std::filesystem::path& directory, const AgentTimes& times) {
  ::prctl(PR_SET_NAME, kAgentName);
  for (const int number : {SIGHUP, SIGINT, SIGPIPE}) ::signal(number, SIG_IGN);
  const std::filesystem::path lock_path = directory / kAgentLock, socket_path = directory / kAgentSocket;
  const Fd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) throw Error(fmt::format("cannot open file '{}': {}", lock_path.string(), std::strerror(errno)));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return 0;
  const Fd listener = listen_at(socket_path);
  AgentServer server(listener, lock, times);
  server.run();
  // The lock is still held, so this cannot be the socket of another agent.
  std::filesystem::remove(socket_path);
  return 0;
}

}  // namespace adaptdl::sched
