// SearchReport reports a search while it runs: as lines on standard error, with a table of the trials below them on a
// terminal, or as JSON events on standard output (`adaptdl tune --json`, described in docs/tune.md).
//
// A slow or closed terminal or pipe does not delay the search; only close() waits for the reader.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command/tune/search_view.h"
#include "command/tune/tune_plan.h"
#include "terminal/json_lines.h"
#include "terminal/notice_lines.h"
#include "tune/journal/journal.h"
#include "tuner/search_event.h"
#include "view/search_screen.h"

namespace adaptdl::cli {

// How a search ended, if it did not end with an error.
struct SearchEnd {
  bool done = false;  // the study is done; otherwise the search has stopped
  int exit_code = 0;
  std::string reason;    // why the search stopped
  bool used_up = false;  // whether the search stopped at the device-hours limit
};

class SearchReport {
 public:
  // `plan` and `journal` must outlive the report. The table gets the statuses of runs from `status_of`.
  SearchReport(const TunePlan& plan, const sched::tune::Journal& journal, SearchView::StatusOf status_of);
  ~SearchReport() { close(); }
  SearchReport(const SearchReport&) = delete;
  SearchReport& operator=(const SearchReport&) = delete;

  // Shows a line for the user, always on standard error.
  void notice(std::string_view text);
  void begin(const std::string& directory);
  void event(const sched::tune::SearchEvent& event);
  // Reports the last event.
  void end(const SearchEnd& end);
  // Reports an error as the last event. The caller prints its message.
  void fail(int exit_code, const std::string& reason);

  // Draws what has changed, and writes pending text, without blocking.
  void update();
  // Like update(), but starts on a new line. Must be called after the process was stopped (Ctrl-Z), because other text
  // may have appeared since then.
  void continue_after_stop();
  // Writes all pending text and wipes the table. Later text is printed as usual.
  void close();

 private:
  const sched::tune::Study& study() const;
  void put_json(const std::string& event, const nlohmann::ordered_json& fields);
  void put_end(const char* event, int exit_code, const std::string& reason);

  const TunePlan& plan_;
  const sched::tune::Journal& journal_;
  SearchView view_;
  std::optional<SearchScreen> screen_;
  JsonLines json_;
  NoticeLines notices_;             // used without a table
  std::vector<std::string> lines_;  // the table's lines
  SearchScreen::Size size_;         // the size for which `lines_` were formatted
  std::chrono::steady_clock::time_point made_at_{};
  bool changed_ = true;
};

}  // namespace adaptdl::cli
