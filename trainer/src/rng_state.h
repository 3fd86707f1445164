// Restores LibTorch's random generators after restarts.
//
// State "adaptdl-rng": the default CPU generator of each rank, and that of each CUDA device, as raw bytes. After a
// restart on as many replicas, dropout and similar operations draw the numbers that they would have drawn without it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace adaptdl::internal {

// Restores the generators from the checkpoint. Must be called at the first step boundary of the process, where training
// resumes, and not earlier, since the code before it is replayed and draws numbers of its own. A rank that is not in
// the checkpoint gets generators derived from rank 0's. In a new job, ranks other than 0 derive theirs from the seed
// that the program set alike on all of them, so that no two replicas draw the same dropout masks.
void resume_rng();

// Creates and registers the state if that has not happened. Checkpoints that are saved before resume_rng(), for example
// by a finished job that runs again, keep the generators of the checkpoint that was loaded.
void register_rng();

// A snapshot of the generators, taken by the constructor.
class RngStates {
 public:
  RngStates();
  // Sets the generators to these states.
  void restore() const;

 private:
  std::map<std::string, std::vector<std::byte>> states_;
};

}  // namespace adaptdl::internal
