// A trial's results, read from one of these sources:
//
//   results.jsonl    what its program reported (adaptdl/report.h)
//   logs/            what its program printed
//   tensorboard/     its TensorBoard events; those that were read are also in events.jsonl
//
// A program may report, print and log the same metric. The source is the first in this list that has the metric one
// second after the metric first appears in any of them. The source never changes, because results are recognized by
// their numbers in the source. Once the source is known, the file `source` contains its name: "report", "output" or
// "events".
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

  // `directory` is the trial's directory. `notice` receives a line about event files that cannot be read. Throws Error
  // if the files that this class writes cannot be read.
  TrialResults(std::filesystem::path directory, std::string metric, Notice notice);

  // Returns some or all of the results since the last call; the first call begins with the first result. Throws Error
  // if the results cannot be read or the source cannot be stored.
  std::vector<Result> read(Clock::time_point now = Clock::now()) { return collect(now, false); }
  // Returns the remaining results. Call it once the run has ended and has_more() is false, and again later if
  // is_blocked().
  std::vector<Result> finish(Clock::time_point now = Clock::now()) { return collect(now, true); }
  // Returns whether the last call left available data unread.
  bool has_more() const noexcept;
  // Returns whether something was left out because it could not be read yet.
  bool is_blocked() const noexcept;
  // Closes the files until the next call.
  void close();

  // Return where a trial's program writes its results.
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
  std::vector<Source> sources_;  // preferred ones first; only the chosen one once it is known
  bool is_chosen_ = false;
  std::optional<Clock::time_point> found_since_;
};

}  // namespace adaptdl::sched::tune
