#include "local/base/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "base/fd.h"

namespace adaptdl::sched {
namespace {

// Reads /proc/PID/stat: "PID (NAME) STATE PARENT GROUP SESSION ...". The name may contain ')', so the last ')' ends it.
std::optional<Member> read_member(const char* pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%s/stat", pid);
  const Fd file(::open(path, O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t size = file ? ::read(file.get(), text, sizeof text - 1) : -1;
  if (size <= 0) return std::nullopt;
  text[size] = '\0';
  const char* after_name = std::strrchr(text, ')');
  char state = 0;
  int parent = 0, group = 0, session = 0;
  if (after_name == nullptr || std::sscanf(after_name + 1, " %c %d %d %d", &state, &parent, &group, &session) != 4)
    return std::nullopt;
  if (state == 'Z' || state == 'X') return std::nullopt;
  return Member{std::atoi(pid), parent, session};
}

}  // namespace

std::vector<Member> session_members(const std::set<pid_t>& sessions, bool without_leaders) {
  std::vector<Member> members;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  if (!proc) return members;
  while (const dirent* entry = ::readdir(proc.get())) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    const auto member = read_member(entry->d_name);
    if (!member || !sessions.contains(member->session)) continue;
    if (without_leaders && member->pid == member->session) continue;
    members.push_back(*member);
  }
  return members;
}

std::vector<Member> kill_sessions(const std::set<pid_t>& sessions) {
  // The leader's process group is killed first, in one call that no fork can escape, and then the processes outside of
  // the group.
  for (const pid_t session : sessions) ::kill(-session, SIGKILL);
  auto members = session_members(sessions);
  for (const Member& member : members) ::kill(member.pid, SIGKILL);
  return members;
}

std::size_t signal_orphans(pid_t session, int signal_number) {
  const auto members = session_members({session});
  std::set<pid_t> pids;
  for (const Member& member : members) pids.insert(member.pid);
  std::size_t count = 0;
  for (const Member& member : members) {
    if (pids.contains(member.parent)) continue;
    ::kill(member.pid, signal_number);
    ++count;
  }
  return count;
}

}  // namespace adaptdl::sched
