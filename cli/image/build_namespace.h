// The namespaces of a build, which allow it to mount, and to own files as an image's users, without privileges.
//
// Root gets a mount namespace. Any other user also gets a user namespace, in which the process is root and the
// subordinate ids of /etc/subuid and /etc/subgid are the other users; without those, there is a single id. From then on
// builds run the same code for all users. No mount outlives the process.
//
// Threading: must be entered while the process has one thread, at the start of a command; the result may be read by any
// thread. Lifetime: as long as the process.
#pragma once

#include <string>

namespace adaptdl::image {

struct BuildNamespace {
  // Why the kernel or a container forbids the namespaces, and the remedy; "" if the process is inside. Steps that only
  // read and write files as their owner still work.
  std::string obstacle;
  // Why files cannot belong to users other than root, and the remedy; "" if they can.
  std::string one_id;
  bool own_users = false;
};

// Enters the namespaces; later calls return the result of the first. REQUIRES: the process has one thread.
const BuildNamespace& enter_build_namespace();

// Must be called before anything is mounted for `what` ("RUN"). Throws Error with the obstacle, also if
// enter_build_namespace() was not called.
void require_build_namespace(const std::string& what);

// Returns whether the process is in a user namespace of its own, in which root is not the machine's root.
bool has_own_users();

// Explains why a user namespace cannot be created, given the errno of the attempt, and names the remedy.
std::string why_no_user_namespace(int error);

// Returns a suffix for errors about file owners: " (why, and the remedy)", or "" if all ids are mapped.
std::string one_id_hint();

}  // namespace adaptdl::image
