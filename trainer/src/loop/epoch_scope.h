// The contents of the running epoch: counters for naming objects by their order, and states that outlive their handles.
//
// A loader or accumulator created inside an epoch, for example in a function, may be destroyed before the epoch ends.
// After a restart, the code that created the object is replayed and needs the saved results of the object. Therefore,
// the object's state stays registered until the epoch ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "adaptdl/checkpoint.h"

namespace adaptdl::internal {

// Returns "epoch7", for example, or "epochnone" outside the epoch loop.
std::string epoch_label();

// Returns the end (exclusive) of the running epoch loop or, outside a loop, of the last one.
int epochs_end();

// Returns a number that is unique to this run of an epoch's body in this process, even if the same epoch runs again.
// Returns 0 outside the loop.
std::uint64_t epoch_run();

// Counts a new object of this kind. Returns how many such objects were counted before it in this run of the epoch or,
// outside the epoch loop, in this process.
int count_in_epoch(const std::string& kind);

// Returns the state with this name that an earlier run of this epoch's body left when an exception ended it, or null.
std::shared_ptr<checkpoint::State> find_in_epoch(const std::string& name);

// Keeps `state` registered until the running epoch is finished. Does nothing outside the epoch loop.
void keep_until_epoch_ends(std::shared_ptr<checkpoint::State> state);

// Returns a state of the running epoch. The state is created and loaded, unless an earlier run of this epoch left one.
template <class T, class... Args>
std::shared_ptr<T> make_in_epoch(const std::string& name, Args&&... args) {
  if (auto kept = std::dynamic_pointer_cast<T>(find_in_epoch(name))) return kept;
  auto state = std::make_shared<T>(name, std::forward<Args>(args)...);
  checkpoint::load_state(*state);
  keep_until_epoch_ends(state);
  return state;
}

}  // namespace adaptdl::internal
