#include "command/tune/search_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/counted.h"
#include "command/tune/tune_show.h"
#include "terminal/format.h"
#include "terminal/terminal.h"
#include "tune/study/space_text.h"
#include "tuner/device_ledger.h"
#include "tuner/study_view.h"

namespace adaptdl::cli {
namespace {

namespace tune = sched::tune;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// The table is redrawn this often because elapsed times and runs change without an event.
constexpr auto kRefreshTableEvery = std::chrono::seconds(1);

std::string utc_text(std::chrono::system_clock::time_point time) {
  const auto count = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(count / 1000)), count % 1000);
}

// Returns "" for an event that is not reported as JSON, because the final event contains the same reason.
std::string event_name(tune::SearchEvent::Kind kind) {
  using Kind = tune::SearchEvent::Kind;
  switch (kind) {
    case Kind::kStarted:
      return "trial_started";
    case Kind::kResult:
      return "trial_result";
    case Kind::kPausing:
      return "trial_paused";
    case Kind::kAdvanced:
      return "trial_advanced";
    case Kind::kContinued:
      return "trial_continued";
    case Kind::kComplete:
      return "trial_complete";
    case Kind::kPruned:
      return "trial_pruned";
    case Kind::kFailed:
      return "trial_failed";
    case Kind::kStopping:
      return "";
  }
  return "";
}

// Numbers that are not finite are written as null.
template <typename T>
ordered_json number_or_null(const std::optional<T>& number) {
  return number ? ordered_json(*number) : ordered_json();
}

ordered_json text_or_null(const std::string& text) { return text.empty() ? ordered_json() : ordered_json(text); }

}  // namespace

SearchReport::SearchReport(const TunePlan& plan, const tune::Journal& journal, SearchView::StatusOf status_of)
    : plan_(plan),
      journal_(journal),
      view_(plan.settings.metric, plan.settings.trials, Clock::now(), std::move(status_of)) {
  if (!plan.json && is_capable_terminal(STDERR_FILENO)) screen_.emplace();
}

// Returns a study without trials if the study was deleted from its storage.
const tune::Study& SearchReport::study() const {
  static const tune::Study kNone{.id = 0,
                                 .name = "",
                                 .directions = {tune::Direction::kMaximize},
                                 .user_attributes = {},
                                 .system_attributes = {},
                                 .trials = {}};
  const tune::Study* const found = journal_.find(plan_.study);
  return found == nullptr ? kNone : *found;
}

void SearchReport::notice(std::string_view text) {
  if (screen_) return screen_->notice(text);
  notices_.put(text);
}

void SearchReport::begin(const std::string& directory) {
  const tune::StudySettings& settings = plan_.settings;
  if (!plan_.json)
    return notice(fmt::format("study '{}': {} of '{}', up to {} at the same time; stored in '{}'", plan_.study,
                              counted(settings.trials, "trial"), settings.command.front(), settings.parallel,
                              directory));
  put_json("search_started", {{"study", plan_.study},
                              {"directory", directory},
                              {"metric", settings.metric},
                              {"direction", plan_.direction == tune::Direction::kMaximize ? "max" : "min"},
                              {"trials", settings.trials},
                              {"parallel", settings.parallel},
                              {"states", count_states(study())}});
}

void SearchReport::event(const tune::SearchEvent& event) {
  changed_ = true;
  if (!plan_.json || event.kind == tune::SearchEvent::Kind::kStopping) {
    const std::string text = tune::to_text(event, plan_.settings.metric);
    if (!text.empty()) notice(text);
    return;
  }
  put_json(event_name(event.kind), {{"trial", event.trial},
                                    {"parameters", nlohmann::json(event.parameters)},
                                    {"value", number_or_null(event.value)},
                                    {"step", number_or_null(event.step)},
                                    {"reason", text_or_null(event.reason)}});
}

void SearchReport::end(const SearchEnd& end) {
  notices_.keep_all();
  if (plan_.json) return put_end(end.done ? "search_done" : "search_stopped", end.exit_code, end.reason);
  const std::string& metric = plan_.settings.metric;
  if (const tune::Trial* const best = tune::best_trial(study()))
    notice(fmt::format("best: trial {}, {} {:.6g}: {}", best->number, metric, best->values.front(),
                       tune::to_text(best->parameters)));
  else
    notice(fmt::format("no trial has a value of '{}'", metric));
  notice(fmt::format("device-hours: {}", format_hours(tune::device_seconds(study()))));
  if (end.done) return;
  const std::string to_continue = fmt::format("to continue: adaptdl tune --resume --study {}", plan_.study);
  notice(end.used_up ? fmt::format("{}; {} --gpu-hours MORE", end.reason, to_continue) : to_continue);
}

void SearchReport::fail(int exit_code, const std::string& reason) {
  if (plan_.json) put_end("search_stopped", exit_code, reason);
}

void SearchReport::put_end(const char* event, int exit_code, const std::string& reason) {
  const tune::Trial* const best = tune::best_trial(study());
  put_json(event, {{"study", plan_.study},
                   {"states", count_states(study())},
                   {"best", best == nullptr ? nlohmann::json() : trial_json(study(), *best)},
                   {"device_seconds", tune::device_seconds(study())},
                   {"reason", text_or_null(reason)},
                   {"exit_code", exit_code}});
}

void SearchReport::put_json(const std::string& event, const ordered_json& fields) {
  ordered_json line{{"event", event}};
  line.update(fields);
  line["time"] = utc_text(std::chrono::system_clock::now());
  json_.put(line);
}

void SearchReport::update() {
  json_.write_some();
  notices_.write_some();
  if (!screen_) return;
  const auto now = Clock::now();
  const SearchScreen::Size size = screen_->size();
  const auto age = now - made_at_;
  if (size != size_ || age >= kRefreshTableEvery || (changed_ && age >= kRedrawEvery)) {
    lines_ = search_lines(view_.snapshot(study(), size.height, now), size.width, size.height, screen_->colour());
    size_ = size;
    made_at_ = now;
    changed_ = false;
  }
  screen_->draw(lines_, now);
}

void SearchReport::continue_after_stop() {
  if (screen_) screen_->forget();
  update();
}

void SearchReport::close() {
  json_.write_all();
  notices_.write_all();
  screen_.reset();
}

}  // namespace adaptdl::cli
