// The results that a trial's program prints as JSON lines.
#pragma once

#include <filesystem>
#include <string>

#include "local/record/run_logs.h"
#include "tuner/result_source.h"

namespace adaptdl::sched::tune {

class PrintedResults final : public ResultSource {
 public:
  // `logs` is the directory with rank-0.log.
  PrintedResults(std::filesystem::path logs, std::string metric);

  void read(Clock::time_point now, bool ended) override;
  bool has_more() const noexcept override { return has_more_; }
  bool has_results() const noexcept override { return !found_.empty(); }
  std::vector<Result> take() override;
  void close() override { logs_.close(); }

 private:
  RunLogs logs_;
  const std::string metric_;
  bool has_more_ = false;
  std::vector<Result> found_;
};

}  // namespace adaptdl::sched::tune
