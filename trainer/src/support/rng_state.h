// Restores LibTorch's random number generators after restarts.
//
// State "adaptdl-rng": the default generators of the CPU and of each CUDA device on each rank, as raw bytes. After a
// restart on the same number of replicas, dropout and similar operations draw the same numbers as without the restart.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace adaptdl::internal {

// Restores the generators from the checkpoint. Must be called at the first step boundary of the process, where training
// resumes, and not earlier, because the code before that boundary is replayed and also draws numbers. The generators of
// a rank that is not in the checkpoint are derived from rank 0's generators. In a new job, ranks other than 0 derive
// their generators from the seed, which the program sets to the same value on all replicas, so that no two replicas
// draw the same dropout masks.
void resume_rng();

// Creates and registers the state if it does not exist. Checkpoints that are saved before resume_rng(), for example by
// a finished job that is run again, keep the generators of the loaded checkpoint.
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
