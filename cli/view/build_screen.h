// BuildScreen shows a build on standard error: its steps, the output of RUN, and transfers. On a terminal, a line below
// them shows the current activity.
#pragma once

#include <chrono>
#include <deque>
#include <string>

#include "image/build/builder.h"

namespace adaptdl::cli {

class BuildScreen final : public image::BuildReport {
 public:
  // A quiet screen shows only notices until show_failure() is called.
  explicit BuildScreen(bool quiet);
  ~BuildScreen() override { wipe(); }

  void begin_step(const image::StepInfo& step) override;
  void end_step(const image::StepInfo& step, bool cached, std::chrono::milliseconds took) override;
  void output(const image::StepInfo& step, std::string_view line) override;
  void transfer(const image::TransferInfo& transfer) override;
  void notice(std::string_view text) override;

  // Shows the last lines of the failed step's output, if they have not been shown yet.
  void show_failure();
  void wipe();

 private:
  void put(const std::string& line);
  void live(const std::string& text);

  const bool quiet_, capable_, colour_;
  bool drawn_ = false, headed_ = false;
  std::string header_;
  std::deque<std::string> last_;
  std::chrono::steady_clock::time_point drawn_at_{};
};

// Returns text such as "[2/7 builder] RUN make".
std::string step_text(const image::StepInfo& step);

}  // namespace adaptdl::cli
