// The namespaces that a build lives in: what lets it mount, and own files as an image's users, without privileges.
//
// Root gets a mount namespace of its own. Anyone else gets a user namespace too, in which the process is root and the
// subordinate ids of /etc/subuid and /etc/subgid are the others; with none, there is one id alone. From then on builds
// of root and of anyone else run the same code. Nothing that is mounted outlives the process.
//
// Threading: entered by the process's only thread, at the beginning of a command; what it found may be read by all.
// Lifetime: as long as the process.
#pragma once

#include <string>

namespace adaptdl::image {

struct BuildNamespace {
  // Why the kernel or a container forbids it, and the way out; "" if the process is inside. What only reads and writes
  // files as their owner works without.
  std::string obstacle;
  // Why files cannot belong to others than root, and the way out; "" if they can.
  std::string one_id;
  bool own_users = false;
};

// Enters them, once: a later call returns what the first one found. REQUIRES: one thread.
const BuildNamespace& enter_build_namespace();

// For what needs to mount, as `what` says ("RUN"): throws Error with the obstacle, also if nobody called
// enter_build_namespace().
void require_build_namespace(const std::string& what);

// Whether the process is in a user namespace of its own, so that its root is not the machine's.
bool has_own_users();

// Why a user namespace cannot be made, by the errno of the attempt, and the way out.
std::string why_no_user_namespace(int error);

// To be added to an error about owners: " (why, and the way out)", or "" where all ids are there.
std::string one_id_hint();

}  // namespace adaptdl::image
