// The system calls that a step's command may make: the OCI default profile without administrative capabilities.
#pragma once

#include <linux/filter.h>

#include <vector>

namespace adaptdl::image {

// Returns the filter's program, for this machine and the 32-bit programs that it runs. The first call builds it in a
// few milliseconds; later calls cost nothing. Any thread may call this function. Throws Error.
const std::vector<sock_filter>& step_filter();

// Filters the system calls of this thread and of all processes that it starts. The caller must have CAP_SYS_ADMIN in
// its user namespace: no_new_privs, the alternative, would disable set-id programs. Throws Error, for example if the
// kernel does not support filters.
void apply_filter(const std::vector<sock_filter>& program);

}  // namespace adaptdl::image
