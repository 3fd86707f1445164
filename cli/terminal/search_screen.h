// SearchScreen shows `adaptdl tune` on a terminal: notices, which scroll, and below them a table of the trials that is
// redrawn whenever it changes.
//
//   digits: 24 of 64 trials, 3 running, 12 paused, 2 complete, 7 pruned, 0 failed  1:07  0.12 device-hours
//   best: trial 3, accuracy 0.9712: lr=0.02 opt=sgd
//   TRIAL  STATE    PARAMETERS       ACCURACY  RUNG  REPLICAS  GOODPUT   ETA
//      21  running  lr=0.004 opt=…     0.9312     1         2    5,120  0:42
//
// Threading: used by one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "local/fd.h"
#include "terminal/output_queue.h"

namespace adaptdl::cli {

// A trial as the table shows it; unknown values are "-".
struct TrialRow {
  int number = 0;
  std::string state, parameters;
  std::optional<double> value;  // the last one of the metric
  std::optional<int> rung, replicas;
  std::optional<double> goodput;                  // samples per second, weighted by their efficiency
  std::optional<std::chrono::milliseconds> left;  // until its training ends
};

struct SearchSnapshot {
  struct Count {
    std::string state;
    int trials = 0;
  };
  std::string study, metric;
  int trials = 0, all = 0;  // created so far, and in the end
  std::vector<Count> counts;
  std::chrono::milliseconds elapsed{0};  // of this search
  double device_seconds = 0;             // of the study
  std::optional<TrialRow> best;
  std::vector<TrialRow> rows;  // in the order in which they are shown
};

// Returns the lines of the table: at most `height`, none wider than `width`. If trials are left out, a last line says
// how many. Long parameters are cut so that the other columns fit, as far as the width allows.
std::vector<std::string> search_lines(const SearchSnapshot& snapshot, std::size_t width, std::size_t height,
                                      bool colour);

// Draws on the terminal of standard error, without blocking: if it is slow, stopped (Ctrl-S) or gone, the table is
// drawn later, from newer lines. A process in the background draws no table.
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
  // Shows a line above the table, from the next draw() on.
  void notice(std::string_view text);
  // Draws these lines in place of the previous ones, at most ten times a second.
  void draw(std::vector<std::string> lines, Clock::time_point now = Clock::now());
  // The cursor is elsewhere, as after Ctrl-Z and fg: what was drawn stays, and the table is drawn again below it.
  void forget() { drawn_.clear(); }
  // Wipes the table and writes all notices, and blocks as long as that takes.
  void close();

 private:
  std::string wiping() const;

  // A non-blocking file description of the terminal, of this process only; without one, standard error is used.
  sched::Fd terminal_;
  const int fd_;
  const bool colour_;
  OutputQueue queue_;
  std::string notices_;             // that wait to be drawn
  std::vector<std::string> drawn_;  // above the cursor
  Clock::time_point drawn_at_{};
};

}  // namespace adaptdl::cli
