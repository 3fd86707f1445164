// The processes of a session: a replica and all that it started.
//
// Each replica leads a session of its own, and its descendants stay in it even if they make process groups, unless they
// call setsid(2) to get away on purpose. The id of a session is not used again while a process is in it.
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

// The living (not zombie) processes of these sessions, except their leaders if `without_leaders`.
std::vector<Member> session_members(const std::set<pid_t>& sessions, bool without_leaders = false);

// Sends SIGKILL to every living process of these sessions. Returns those that there still were: to be called again
// until there are none, since what is just being forked in a process group of its own may be missed.
std::vector<Member> kill_sessions(const std::set<pid_t>& sessions);

// Sends a signal to the topmost processes of a session, those whose parent is not in it: the children that a leader
// left. Returns how many there were.
std::size_t signal_orphans(pid_t session, int signal_number);

}  // namespace adaptdl::sched
