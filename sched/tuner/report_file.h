// The results in the file that adaptdl::report() writes (adaptdl/report.h).
#pragma once

#include <filesystem>
#include <string>

#include "base/fd.h"
#include "local/base/lines.h"
#include "tuner/result_source.h"

namespace adaptdl::sched::tune {

class ReportFile final : public ResultSource {
 public:
  // The file may appear later.
  ReportFile(std::filesystem::path file, std::string metric);

  void read(Clock::time_point now, bool ended) override;
  bool has_more() const noexcept override { return has_more_; }
  bool has_results() const noexcept override { return !found_.empty(); }
  std::vector<Result> take() override;
  void close() override { input_.reset(); }

 private:
  const std::filesystem::path file_;
  const std::string metric_;
  Fd input_;
  LineSplitter lines_;
  std::uint64_t offset_ = 0;
  bool has_more_ = false;
  std::vector<Result> found_;
};

}  // namespace adaptdl::sched::tune
