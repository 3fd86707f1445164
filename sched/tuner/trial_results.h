// The results of one trial, read as they come from one of these sources:
//
//   results.jsonl    what its program reported (adaptdl/report.h)
//   logs/            what it printed
//   tensorboard/     its TensorBoard events; those that were read are also in events.jsonl
//   source           which of them it is, once that is known: "report", "output" or "events"
//
// It is the first of them in which the metric appears within a second of the others: a program may report, print and
// log the same metric. It never changes, because results are recognized by their number in it.
//
// Threading: one thread at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/result_source.h"

namespace adaptdl::sched::tune {

class TrialResults {
 public:
  using Clock = ResultSource::Clock;
  using Notice = std::function<void(std::string_view)>;

  // `directory`: of the trial. `notice` gets a line about event files that cannot be read. Throws Error if the files
  // of this class cannot be read.
  TrialResults(std::filesystem::path directory, std::string metric, Notice notice);

  // The results since the last call, from the first one on, or a part of them. Throws Error if they cannot be read, or
  // the source cannot be stored.
  std::vector<Result> read(Clock::time_point now = Clock::now()) { return collect(now, false); }
  // The rest of them. To be called when the run has ended and !has_more(), and again later if is_blocked().
  std::vector<Result> finish(Clock::time_point now = Clock::now()) { return collect(now, true); }
  // Whether the last call left something unread that was there.
  bool has_more() const noexcept;
  // Whether something could not be read that can be read later.
  bool is_blocked() const noexcept;
  // Closes the files until the next call.
  void close();

  // Where the program of a trial puts them.
  static std::filesystem::path report_file(const std::filesystem::path& directory);
  static std::filesystem::path log_directory(const std::filesystem::path& directory);
  static std::filesystem::path event_directory(const std::filesystem::path& directory);

 private:
  struct Source {
    std::string name;
    std::unique_ptr<ResultSource> results;
  };

  std::vector<Result> collect(Clock::time_point now, bool ended);
  void choose(Clock::time_point now, bool ended);
  void keep(const std::string& name);

  const std::filesystem::path directory_;
  std::vector<Source> sources_;  // the preferred ones first; the only one, once it is chosen
  bool is_chosen_ = false;
  std::optional<Clock::time_point> found_since_;
};

}  // namespace adaptdl::sched::tune
