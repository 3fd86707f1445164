// The events of a search, for programs and people that follow it.
//
// A trial starts once and ends once. It is ended by the pruner, its program, `adaptdl tune stop`, or the end of the
// search. Before that, it may pause and continue. Events are delivered in the order in which they are stored, each
// after it has been stored.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tune/study/study.h"

namespace adaptdl::sched::tune {

struct SearchEvent {
  enum class Kind {
    kStarted,    // the first start of a trial, with its parameters
    kResult,     // a new value of the metric
    kPausing,    // the trial saves a checkpoint and ends, and may continue later
    kAdvanced,   // the trial passes a rung without pausing
    kContinued,  // the trial starts again: it was promoted, its process was killed, or the study was resumed
    kComplete,
    kPruned,
    kFailed,
    kStopping,  // all trials save a checkpoint and end, because the search reached a limit
  };

  Kind kind = Kind::kStarted;
  int trial = -1;  // its number; -1 for an event of the search
  Values parameters;
  std::optional<double> value;       // last value of the metric; may be NaN
  std::optional<std::int64_t> step;  // step of the last value
  std::string reason;                // one clause; may be empty
};

using SearchObserver = std::function<void(const SearchEvent&)>;

// Creates an event from a trial's stored state.
SearchEvent trial_event(SearchEvent::Kind kind, const Trial& trial, std::string reason);

// Returns a human-readable line, or an empty string for a result. `metric` is the metric's name.
std::string to_text(const SearchEvent& event, std::string_view metric);

}  // namespace adaptdl::sched::tune
