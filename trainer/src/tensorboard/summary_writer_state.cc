#include "tensorboard/summary_writer_state.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/env.h"
#include "tensorboard/event_file.h"

namespace adaptdl::internal {

namespace {

using LastSteps = std::map<std::string, std::int64_t, std::less<>>;  // by tag
// The JSON form uses lists, because not every string is a valid key in a checkpoint's objects.
using Steps = std::vector<std::pair<std::string, std::int64_t>>;
using Saved = std::vector<std::pair<std::string, Steps>>;  // by directory

constexpr auto kLast = std::numeric_limits<std::int64_t>::max();

class SummaryWritersState final : public checkpoint::State {
 public:
  SummaryWritersState() : State("adaptdl-tensorboard") { checkpoint::load_state(*this); }

  void save(checkpoint::Writer& writer) const override {
    Saved saved;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [directory, steps] : logged_) saved.emplace_back(directory, Steps(steps.begin(), steps.end()));
    }
    // Events logged so far are not logged again after a restart, so they must be in the files.
    flush_event_files();
    writer.json("last_steps", saved);
  }

  void load(const checkpoint::Reader& reader) override {
    const auto saved = reader.json("last_steps").get<Saved>();
    const std::lock_guard lock(mutex_);
    for (const auto& [directory, steps] : saved) logged_[directory] = LastSteps(steps.begin(), steps.end());
    replay_ = logged_;
  }

  std::optional<std::int64_t> open(const std::string& directory, std::optional<std::int64_t> purge_step,
                                   const std::string& parent) {
    const std::lock_guard lock(mutex_);
    if (!opened_.insert(directory).second) return purge_step;  // continues after an earlier writer in this process
    auto& logged = logged_[directory];
    const auto replay = replay_.find(directory);
    if (purge_step) {
      const auto is_void = [&](const auto& entry) { return entry.second >= *purge_step; };
      std::erase_if(logged, is_void);
      if (replay != replay_.end()) std::erase_if(replay->second, is_void);
      return purge_step;
    }
    if (replay != replay_.end() && !replay->second.empty()) {
      const auto& [tag, last] = *std::max_element(replay->second.begin(), replay->second.end(),
                                                  [](const auto& a, const auto& b) { return a.second < b.second; });
      return last == kLast ? last : last + 1;
    }
    const bool all_is_later = replay != replay_.end() || replay_.contains(parent);
    const bool lost = env::num_restarts() > 0 && !checkpoint::loaded_number();
    return all_is_later || lost ? std::optional<std::int64_t>(0) : std::nullopt;
  }

  void end_replay() {
    const std::lock_guard lock(mutex_);
    replaying_ = false;
  }

  bool is_replayed(const std::string& directory, std::string_view tag, std::int64_t step) const {
    const std::lock_guard lock(mutex_);
    if (!replaying_) return false;
    const auto tags = replay_.find(directory);
    if (tags == replay_.end()) return false;
    const auto last = tags->second.find(tag);
    return last != tags->second.end() && step <= last->second;
  }

  void count(const std::string& directory, std::string_view tag, std::int64_t step) {
    const std::lock_guard lock(mutex_);
    auto& last_steps = logged_[directory];
    const auto last = last_steps.find(tag);
    if (last == last_steps.end()) {
      last_steps.emplace(tag, step);
    } else {
      last->second = std::max(last->second, step);
    }
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, LastSteps> logged_;
  std::map<std::string, LastSteps> replay_;  // the contents of the loaded checkpoint
  bool replaying_ = true;
  std::set<std::string> opened_;
};

// Never destroyed, because a writer may be a global that outlives other globals.
SummaryWritersState& writers_state() {
  static auto* const state = new SummaryWritersState;
  return *state;
}

}  // namespace

void end_event_replay() { writers_state().end_replay(); }
void register_events() { writers_state(); }

std::optional<std::int64_t> resume_events(const std::string& log_dir, std::optional<std::int64_t> purge_step,
                                          const std::string& parent) {
  return writers_state().open(log_dir, purge_step, parent);
}

bool is_replayed(const std::string& log_dir, std::string_view tag, std::int64_t step) {
  return writers_state().is_replayed(log_dir, tag, step);
}

void count_event(const std::string& log_dir, std::string_view tag, std::int64_t step) {
  writers_state().count(log_dir, tag, step);
}

}  // namespace adaptdl::internal
