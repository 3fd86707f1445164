// A user namespace's ID maps: the available IDs, and how they are mapped.
//
// Threading: the process must have only one thread.
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

// Returns the ranges that a file such as /etc/subuid or /etc/subgid grants to a user, in the file's order, preceded by
// a range that maps ID 0 to `own`. Skips malformed lines.
std::vector<IdRange> subordinate_ids(std::string_view file, const std::string& user, uid_t number, unsigned long own);

// Maps all of this process's IDs to the same numbers in the new user namespace of `process`. Requires root. Returns
// whether that succeeded.
bool map_own_ids(pid_t process);

// A child process that stays in the original namespace and, on request, maps IDs into its parent's namespace. Both ends
// of its channel are closed on exec.
class IdMapper {
 public:
  IdMapper();   // throws Error if the process cannot be started
  ~IdMapper();  // waits until the child has ended
  IdMapper(const IdMapper&) = delete;
  IdMapper& operator=(const IdMapper&) = delete;

  // Maps the IDs; must be called in the new user namespace. Returns why files can belong to only one ID, or "" if the
  // IDs were mapped.
  std::string map();

 private:
  pid_t pid_ = -1;
  int channel_ = -1;
};

}  // namespace adaptdl::image
