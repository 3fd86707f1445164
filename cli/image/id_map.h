// The id maps of a user namespace: the available ids, and how they are mapped.
//
// Threading: for a process with one thread.
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

// Returns the ranges that a file such as /etc/subuid or /etc/subgid grants to a user, in the file's order; malformed
// lines are skipped. The first range maps id 0 to `own`.
std::vector<IdRange> subordinate_ids(std::string_view file, const std::string& user, uid_t number, unsigned long own);

// Maps all ids of this process into the new user namespace of `process`, under the same numbers. Returns whether that
// succeeded; it requires root.
bool map_own_ids(pid_t process);

// A child process that stays in the original namespace and, on request, maps ids into the namespace of its parent. Both
// ends of its channel are closed on exec.
class IdMapper {
 public:
  IdMapper();   // throws Error if no process can be started
  ~IdMapper();  // waits until the child has ended
  IdMapper(const IdMapper&) = delete;
  IdMapper& operator=(const IdMapper&) = delete;

  // Must be called in the new user namespace. Returns why files can belong to only one id, or "".
  std::string map();

 private:
  pid_t pid_ = -1;
  int channel_ = -1;
};

}  // namespace adaptdl::image
