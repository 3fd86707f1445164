// Finds and signals the processes of a session: a replica and everything that it started.
//
// Each replica leads its own session. The replica's descendants stay in its session even if they create process groups,
// unless they call setsid(2) on purpose. A session's id is not reused while any process is in the session.
#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

namespace adaptdl::sched {

struct Member {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t session = 0;
};

// Returns the living (not zombie) processes of these sessions, excluding the session leaders if `without_leaders` is
// true.
std::vector<Member> session_members(const std::set<pid_t>& sessions, bool without_leaders = false);

// Sends SIGKILL to every living process of these sessions, and returns these processes. Must be called repeatedly until
// it returns an empty list, since a call may miss a process that is being forked at that moment in another process
// group of the session.
std::vector<Member> kill_sessions(const std::set<pid_t>& sessions);

// Sends a signal to the topmost processes of a session: those whose parents are not in the session, because its leader
// has ended and left them behind. Returns the number of these processes.
std::size_t signal_orphans(pid_t session, int signal_number);

}  // namespace adaptdl::sched
