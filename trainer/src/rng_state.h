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
// resume_rng(), as by a finished job that is run again, have the generators of the checkpoint that was loaded.
void register_rng();

// The states of the generators at its construction.
class RngStates {
 public:
  RngStates();
  // Sets the generators to these states.
  void restore() const;

 private:
  std::map<std::string, std::vector<std::byte>> states_;
};

}  // namespace adaptdl::internal
