// Results from TensorBoard event files.
//
// Several files may contain results, and programs write them late and in any order. The order in which results are
// delivered is therefore stored, and a later search receives the results in the same order.
#pragma once

#include <filesystem>
#include <string>

#include "tuner/event_files.h"
#include "tuner/result_source.h"

namespace adaptdl::sched::tune {

class EventResults final : public ResultSource {
 public:
  // `delivered` is the file that stores the delivered results, one JSON object per line. Throws Error if it exists and
  // cannot be read. An invalid line and all lines after it are removed, and their results are read from the event files
  // again.
  EventResults(std::filesystem::path events, std::filesystem::path delivered, std::string metric,
               EventFiles::Notice notice);

  // Checks the files at most a few times per second, and always when the run has ended.
  void read(Clock::time_point now, bool ended) override;
  bool has_more() const noexcept override { return files_.has_more(); }
  bool is_blocked() const noexcept override { return files_.is_blocked(); }
  bool has_results() const noexcept override { return !stored_.empty() || !found_.empty(); }
  // Throws Error if the results cannot be stored.
  std::vector<Result> take() override;

 private:
  void load();

  const std::filesystem::path delivered_;
  EventFiles files_;
  std::vector<Result> stored_;  // delivered by an earlier search
  std::vector<EventResult> found_;
  Clock::time_point next_look_ = Clock::time_point::min();
};

}  // namespace adaptdl::sched::tune
