// SearchScreen shows `adaptdl tune` on a terminal: scrolling notices, and below them a table of the trials that is
// redrawn whenever it changes.
//
//   digits: 24 of 64 trials, 3 running, 12 paused, 2 complete, 7 pruned, 0 failed  1:07  0.12 device-hours
//   best: trial 3, accuracy 0.9712: lr=0.02 opt=sgd
//   TRIAL  STATE    PARAMETERS       ACCURACY  RUNG  REPLICAS  GOODPUT   ETA
//      21  running  lr=0.004 opt=…     0.9312     1         2    5,120  0:42
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "terminal/output_queue.h"

namespace adaptdl::cli {

// A trial as the table shows it; the table shows "-" for unknown values.
struct TrialRow {
  int number = 0;
  std::string state, parameters;
  std::optional<double> value;  // the metric's last value
  std::optional<int> rung, replicas;
  std::optional<double> goodput;                  // samples per second, weighted by statistical efficiency
  std::optional<std::chrono::milliseconds> left;  // time until its training ends
};

struct SearchSnapshot {
  struct Count {
    std::string state;
    int trials = 0;
  };
  std::string study, metric;
  int trials = 0, all = 0;  // number of trials created so far, and total number of trials
  std::vector<Count> counts;
  std::chrono::milliseconds elapsed{0};  // time since this search began
  double device_seconds = 0;             // the study's usage, including earlier searches
  std::optional<TrialRow> best;
  std::vector<TrialRow> rows;  // in the order in which they are shown
};

// Returns the lines of the table: at most `height` lines of at most `width` columns. If trials are left out, the last
// line shows how many. Long parameters are truncated so that the other columns fit, as far as the width allows.
std::vector<std::string> search_lines(const SearchSnapshot& snapshot, std::size_t width, std::size_t height,
                                      bool colour);

// Draws on the terminal on standard error, without blocking: while the terminal is slow, stopped (Ctrl-S) or gone,
// nothing is drawn, and the next table that is drawn contains the newest lines. A process in the background draws no
// table.
class SearchScreen {
 public:
  using Clock = std::chrono::steady_clock;
  struct Size {
    std::size_t width = 0, height = 0;  // for search_lines()
    bool operator==(const Size&) const = default;
  };

  // REQUIRES is_capable_terminal(STDERR_FILENO).
  SearchScreen();
  ~SearchScreen() { close(); }
  SearchScreen(const SearchScreen&) = delete;
  SearchScreen& operator=(const SearchScreen&) = delete;

  Size size() const;
  bool colour() const noexcept { return colour_; }
  // Shows `text` as a line above the table; the line appears at the next draw().
  void notice(std::string_view text);
  // Replaces the lines on the screen with `lines`, at most ten times per second.
  void draw(std::vector<std::string> lines, Clock::time_point now = Clock::now());
  // Call this if the cursor has moved, for example after Ctrl-Z and fg: the drawn table stays, and a new one is drawn
  // below it.
  void forget() { drawn_.clear(); }
  // Wipes the table and writes all notices. Blocks until that is done.
  void close();

 private:
  std::string wiping() const;

  // This process's own non-blocking file description of the terminal; if there is none, standard error is used.
  Fd terminal_;
  const int fd_;
  const bool colour_;
  OutputQueue queue_;
  std::string notices_;             // notices that have not been drawn yet
  std::vector<std::string> drawn_;  // drawn lines above the cursor
  Clock::time_point drawn_at_{};
};

}  // namespace adaptdl::cli
