// This process's place in the job's generations (generation.h), which checkpoints and metrics need to know, too.
#pragma once

#include <string>

namespace adaptdl::generation {

struct Place {
  std::string id;         // ADAPTDL_REPLICA_ID, or empty
  int current = 0;        // the generation that this process is in or is joining
  std::string host;       // address of rank 0 in that generation; empty in the group that was connected at the start
  bool joining = false;   // whether this process must join a running job and has not done so yet
  bool declined = false;  // whether decline() was called

  // See generation::follows(). Throws UsageError if the environment is invalid.
  bool follows() const;
};

// Returns this process's place; the first call reads it from the environment. Threading: only the training thread may
// change it.
Place& place();

}  // namespace adaptdl::generation
