// The contents of the running epoch: counters that name objects by their order, and states that outlive their handles.
//
// A loader or accumulator created inside an epoch, for example in a function, is destroyed before the epoch ends. A
// restart replays the code that created it and needs its saved results, so its state stays registered until the epoch
// ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "adaptdl/checkpoint.h"

namespace adaptdl::internal {

// "epoch7", or "epochnone" outside the epoch loop.
std::string epoch_label();

// The end of the running or last epoch loop, exclusive.
int epochs_end();

// A number that differs between any two runs of an epoch's body in this process, even of one epoch; 0 outside the loop.
std::uint64_t epoch_run();

// Counts an object of this kind. Returns how many came before it in this run of the epoch, or outside the epoch loop.
int count_in_epoch(const std::string& kind);

// The state of this name that an earlier run of this epoch's body left when an exception ended it, or null.
std::shared_ptr<checkpoint::State> find_in_epoch(const std::string& name);

// Keeps `state` registered until the running epoch is finished. Does nothing outside the epoch loop.
void keep_until_epoch_ends(std::shared_ptr<checkpoint::State> state);

// Returns a state of the running epoch, which is created and loaded, or taken over from an earlier run of this epoch.
template <class T, class... Args>
std::shared_ptr<T> make_in_epoch(const std::string& name, Args&&... args) {
  if (auto kept = std::dynamic_pointer_cast<T>(find_in_epoch(name))) return kept;
  auto state = std::make_shared<T>(name, std::forward<Args>(args)...);
  checkpoint::load_state(*state);
  keep_until_epoch_ends(state);
  return state;
}

}  // namespace adaptdl::internal
