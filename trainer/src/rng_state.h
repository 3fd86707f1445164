// The random generators of LibTorch across restarts.
//
// State "adaptdl-rng": the default CPU generator of each rank, and that of each CUDA device, as raw bytes. What dropout
// and the like draw after a restart on as many replicas is what they would have drawn without it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace adaptdl::internal {

// To be called at the first step boundary of the process: there training goes on, and no earlier, for the code before
// it is replayed and draws numbers of its own. Brings the generators to where the checkpoint has them. A rank that it
// does not know gets generators derived from rank 0's. In a new job, ranks other than 0 leave the seed that the program
// set on all of them in the same way, so that no two replicas draw the same dropout masks.
void resume_rng();

// Makes the state, which is registered from then on, if that has not happened. Checkpoints that are saved before
// resume_rng() have the generators of the checkpoint that was loaded: a job that has finished is run again, say.
void register_rng();

// Where the generators are when it is made.
class RngStates {
 public:
  RngStates();
  // Brings them back to there.
  void restore() const;

 private:
  std::map<std::string, std::vector<std::byte>> states_;
};

}  // namespace adaptdl::internal
