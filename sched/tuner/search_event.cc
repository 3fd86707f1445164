#include "tuner/search_event.h"

#include <fmt/format.h>

#include <utility>

#include "tune/study/space_text.h"
#include "tuner/study_view.h"

namespace adaptdl::sched::tune {

SearchEvent trial_event(SearchEvent::Kind kind, const Trial& trial, std::string reason) {
  const auto value = trial.values.empty() ? last_value(trial) : trial.values.front();
  return {kind, trial.number, trial.parameters, value, last_step(trial), std::move(reason)};
}

std::string to_text(const SearchEvent& event, std::string_view metric) {
  using Kind = SearchEvent::Kind;
  const auto text = [&event](std::string_view state) {
    return fmt::format("trial {}: {}{}{}", event.trial, state, event.reason.empty() ? "" : ", ", event.reason);
  };
  switch (event.kind) {
    case Kind::kStarted:
      return fmt::format("trial {}: {}", event.trial, to_text(event.parameters));
    case Kind::kResult:
      return "";
    case Kind::kPausing:
      return text("paused");
    case Kind::kAdvanced:
    case Kind::kContinued:
      return text("continues");
    case Kind::kComplete:
      return text(event.value ? fmt::format("complete, {} {:.6g}", metric, *event.value) : "complete");
    case Kind::kPruned:
      return text("pruned");
    case Kind::kFailed:
      return text("failed");
    case Kind::kStopping:
      return fmt::format("{}: stopping", event.reason);
  }
  return "";
}

}  // namespace adaptdl::sched::tune
