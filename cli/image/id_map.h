// The ids of a user namespace: which there may be, and how they get there.
//
// Threading: plain functions, for a process of one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::image {

struct IdRange {
  unsigned long inside = 0, outside = 0, count = 0;
};

// The ranges that a file as /etc/subuid or /etc/subgid gives to a user, in its order; lines that are none are left out.
// They follow on id 0, which is `own`.
std::vector<IdRange> subordinate_ids(std::string_view file, const std::string& user, uid_t number, unsigned long own);

// Gives a process's new user namespace all ids that this process has, under the same numbers. Returns whether that
// worked: it takes root's rights.
bool map_own_ids(pid_t process);

// A process that stays in the namespace of before and, once asked, gives ids to the process that made it. Both ends of
// it are closed on exec.
class IdMapper {
 public:
  IdMapper();   // Throws Error if no process can be started.
  ~IdMapper();  // waits for its end
  IdMapper(const IdMapper&) = delete;
  IdMapper& operator=(const IdMapper&) = delete;

  // To be called in the new user namespace. Returns why files can belong to one id alone, or "".
  std::string map();

 private:
  pid_t pid_ = -1;
  int channel_ = -1;
};

}  // namespace adaptdl::image
