// What belongs to the epoch that is running: counters that name things by their order, and states that must outlive
// their handles.
//
// A loader or accumulator made inside an epoch, in a function say, is destroyed before the epoch ends. A restart
// replays the code that made it and needs its saved results, so its state stays registered until the epoch ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "adaptdl/checkpoint.h"

namespace adaptdl::internal {

// "epoch7", or "epochnone" outside the epoch loop.
std::string epoch_label();

// Where the epoch loop that is running ends, exclusively.
int epochs_end();

// Differs between any two runs of an epoch's body in this process, even of the same epoch; 0 outside the epoch loop.
std::uint64_t epoch_run();

// How many things of this kind were made in this run of the epoch (or outside the epoch loop) so far; counts one more.
int count_in_epoch(const std::string& kind);

// The state of this name that an earlier run of this epoch's body left, if an exception ended it; else null.
std::shared_ptr<checkpoint::State> find_in_epoch(const std::string& name);

// Keeps `state` registered until the running epoch is finished. Does nothing outside the epoch loop.
void keep_until_epoch_ends(std::shared_ptr<checkpoint::State> state);

// A state of the epoch that is running: made and loaded, or taken over from an earlier run of this epoch.
template <class T, class... Args>
std::shared_ptr<T> make_in_epoch(const std::string& name, Args&&... args) {
  if (auto kept = std::dynamic_pointer_cast<T>(find_in_epoch(name))) return kept;
  auto state = std::make_shared<T>(name, std::forward<Args>(args)...);
  checkpoint::load_state(*state);
  keep_until_epoch_ends(state);
  return state;
}

}  // namespace adaptdl::internal
