// The namespaces in which a build can mount file systems, and create files owned by an image's users, without
// privileges.
//
// Root enters a mount namespace. Any other user also enters a user namespace, in which the process is root and the
// subordinate IDs from /etc/subuid and /etc/subgid represent all other users and groups; without subordinate IDs, only
// one ID is available. After that, builds run the same code for all users. No mount outlives the process.
//
// Threading: a command must enter the namespaces at its start, while the process has one thread; any thread may read
// the result. Lifetime: the namespaces last as long as the process.
#pragma once

#include <string>

namespace adaptdl::image {

struct BuildNamespace {
  // Why the kernel or a container forbids the namespaces, and the remedy; "" if the process has entered them. Steps
  // that only read and write files as the files' owner work even without the namespaces.
  std::string obstacle;
  // Why files cannot belong to users other than root, and the remedy; "" if they can.
  std::string one_id;
  bool own_users = false;
};

// Enters the namespaces; later calls return the result of the first. REQUIRES: the process has one thread.
const BuildNamespace& enter_build_namespace();

// Must be called before anything is mounted. `what` is the operation, such as "execute RUN". Throws Error, "cannot
// WHAT: REASON", if there is an obstacle, or if enter_build_namespace() has not been called.
void require_build_namespace(const std::string& what);

// Returns whether the process is in its own user namespace, in which root is not the machine's root.
bool has_own_users();

// Explains why a user namespace cannot be created, given the errno of the attempt, and names the remedy.
std::string why_no_user_namespace(int error);

// Returns a suffix for errors about file owners: " (why, and the remedy)", or "" if all IDs are mapped.
std::string one_id_hint();

}  // namespace adaptdl::image
