#include "checkpoint/load.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <functional>
#include <set>
#include <utility>

#include "adaptdl/collective.h"
#include "adaptdl/log.h"
#include "base/counted.h"
#include "checkpoint/admission.h"
#include "checkpoint/group.h"
#include "checkpoint/newest.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/states.h"
#include "checkpoint/store.h"
#include "protocol/place.h"

namespace adaptdl::checkpoint {

namespace fs = std::filesystem;

namespace {

struct Choice {
  fs::path directory;
  std::optional<Snapshot> snapshot;      // nullopt if there is no checkpoint
  std::vector<std::string> passed_over;  // why newer checkpoints were skipped
  std::set<std::string> loaded;          // names of the loaded states
  bool joined = false;                   // whether the states come from a running job, not from a directory
  bool warned = false;
};

std::optional<Choice>& choice() {
  static std::optional<Choice> value;
  return value;
}

Choice choose(const fs::path& directory, int rank) {
  Newest newest = find_newest(directory, true, rank);
  if (rank == 0) {
    for (const std::string& name : newest.ignored)
      log::warn(fmt::format("ignoring '{}': 'checkpoint-' is not followed by a number", (directory / name).string()));
  }
  require_intact(directory, newest);
  Choice result{directory, std::move(newest.snapshot), std::move(newest.passed_over), {}, false, false};
  if (rank != 0) return result;
  if (!result.snapshot) {
    log::info(fmt::format("no checkpoint in '{}': starting from the beginning", directory.string()));
    return result;
  }
  for (const std::string& reason : result.passed_over)
    log::warn(fmt::format("{}; using '{}' instead", reason, result.snapshot->path().string()));
  log::info(fmt::format("continuing from '{}', saved by {} at {}", result.snapshot->path().string(),
                        counted(result.snapshot->manifest().replicas, "replica"), result.snapshot->manifest().created));
  return result;
}

// Returns the checkpoint that this process has chosen, or nullptr if no path is set.
Choice* chosen() {
  if (!choice()) {
    if (auto states = generation::admission()) {
      choice() = Choice{{}, std::move(*states), {}, {}, true, false};
      return &*choice();
    }
    const auto directory = configured_directory();
    if (!directory) return nullptr;
    choice() = choose(*directory, Group::for_loading().rank);
  }
  return &*choice();
}

void load_from(State& state, Snapshot& snapshot) {
  std::unique_ptr<Reader> reader = snapshot.reader(state.name());
  std::unique_ptr<Reader> part = state.has_parts() ? snapshot.reader(state.name(), Group::for_loading().rank) : nullptr;
  try {
    state.load(*reader);
    if (part) state.load_part(*part);
  } catch (const CheckpointError&) {
    throw;
  } catch (const collective::CollectiveError&) {
    throw;
  } catch (const std::exception& error) {
    throw CheckpointError(fmt::format("{} cannot be loaded: {}", reader->describe(), first_line(error)));
  }
}

// Loads the states named in `due` from the members of a running job, and then calls `more`. If the members are lost in
// the meantime, the next sender's states may be from a later step, so the states that were already loaded are loaded
// again.
void load_joined(std::set<std::string> due, Choice& own, const std::function<void()>& more) {
  for (;;) {
    try {
      while (!due.empty()) {
        const std::string& name = *due.begin();
        const auto found = states().find(name);
        if (found != states().end() && own.snapshot->find(name) != nullptr) load_from(*found->second, *own.snapshot);
        own.snapshot->close(name);
        own.loaded.insert(name);
        due.erase(due.begin());
      }
      return more();
    } catch (const collective::CollectiveError& lost) {
      log::info(fmt::format("the running replicas were lost while they were sending their states: {}", lost.what()));
      own.snapshot = generation::readmission();
      due.merge(std::exchange(own.loaded, {}));
    }
  }
}

// Returns the text that the replicas compare to check that they chose the same checkpoint.
std::string choice_text() {
  const Choice* own = chosen();
  if (own == nullptr) return "no checkpoint: ADAPTDL_CHECKPOINT_PATH is not set";
  if (!own->snapshot) return fmt::format("no checkpoint");
  return fmt::format("{} {}", checkpoint_name(own->snapshot->manifest().number), own->snapshot->checksum());
}

}  // namespace

bool load_state(State& state, bool required) {
  Choice* own = chosen();
  if (own == nullptr || !own->snapshot) return false;
  Snapshot& snapshot = *own->snapshot;
  if (snapshot.find(state.name()) == nullptr) {
    if (!required) return false;
    std::vector<std::string> names;
    for (const StateInfo& info : snapshot.manifest().states) names.push_back(fmt::format("'{}'", info.name));
    throw CheckpointError(fmt::format("'{}' has no state '{}'; it has: {}", snapshot.path().string(), state.name(),
                                      names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  if (own->joined && own->loaded.contains(state.name())) return false;
  if (own->joined) {
    load_joined({state.name()}, *own, [] {});
  } else {
    load_from(state, snapshot);
    own->loaded.insert(state.name());
  }
  return true;
}

std::optional<std::uint64_t> loaded_number() {
  const Choice* own = chosen();
  if (own == nullptr || !own->snapshot) return {};
  return own->snapshot->manifest().number;
}

void agree() {
  if (generation::place().joining) return;
  const Group group = Group::for_loading();
  if (group.size == 1) return;
  std::string mine;
  group.agree_on_success("cannot load a checkpoint", error_of("", [&] { mine = choice_text(); }));
  // Each replica also sends its reasons, so that the error is complete without the logs of the other replicas.
  std::string reasons;
  if (choice()) reasons = fmt::format("{}", fmt::join(choice()->passed_over, "; "));
  const auto all = group.allgather(mine + "\n" + reasons, "checkpoint to load");
  bool same = true;
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string name = all[rank].substr(0, all[rank].find('\n'));
    const std::string why = all[rank].substr(name.size() + 1);
    same = same && name == all[0].substr(0, all[0].find('\n'));
    texts.push_back(fmt::format("rank {} has {}{}", rank, name, why.empty() ? "" : fmt::format(" ({})", why)));
  }
  if (same) return;
  throw CheckpointError(
      fmt::format("the replicas would load different checkpoints: {}; ADAPTDL_CHECKPOINT_PATH must be one "
                  "directory that all of them share",
                  fmt::join(texts, ", ")));
}

void reset() { choice().reset(); }

void note_saved() {
  if (!choice() || !choice()->snapshot) return;
  if (choice()->joined) return;
  Choice& own = *choice();
  for (const StateInfo& state : own.snapshot->manifest().states) {
    if (own.loaded.contains(state.name)) {
      own.snapshot->close(state.name);
    } else if (!own.warned && Group::for_loading().rank == 0) {
      log::warn(fmt::format("state '{}' of {} was not loaded by this program and {}", state.name,
                            checkpoint_name(own.snapshot->manifest().number),
                            states().contains(state.name) ? "starts from its initial values in the new checkpoint"
                                                          : "is not in the new checkpoint"));
    }
  }
  own.warned = true;
}

void take_remaining_states() {
  if (choice() && choice()->joined) load_joined({}, *choice(), generation::fetch_states);
}

bool loaded_from(const fs::path& directory) {
  return choice() && choice()->snapshot && choice()->directory == directory;
}

}  // namespace adaptdl::checkpoint
