// Finds and signals the processes of a session: a replica and everything that it started.
//
// Each replica leads its own session. Its descendants stay in it even if they create process groups, unless they call
// setsid(2) on purpose. The id of a session is not used again while a process is in it.
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

// Returns the living (not zombie) processes of these sessions, except their leaders if `without_leaders`.
std::vector<Member> session_members(const std::set<pid_t>& sessions, bool without_leaders = false);

// Sends SIGKILL to every living process of these sessions, and returns them. It must be called until it returns none,
// since it may miss a process that is just being forked in a process group of its own.
std::vector<Member> kill_sessions(const std::set<pid_t>& sessions);

// Sends a signal to the topmost processes of a session, whose parents are not in it: the children that its leader left.
// Returns how many there were.
std::size_t signal_orphans(pid_t session, int signal_number);

}  // namespace adaptdl::sched
