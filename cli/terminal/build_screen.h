// What a build shows: its steps, what RUN writes, what is transferred; on a terminal with a line below that says what
// goes on. All of it on standard error.
//
// Threading: one thread at a time.
#pragma once

#include <chrono>
#include <deque>
#include <string>

#include "image/builder.h"

namespace adaptdl::cli {

class BuildScreen final : public image::BuildReport {
 public:
  // A quiet one shows nothing until show_failure().
  explicit BuildScreen(bool quiet);
  ~BuildScreen() override { wipe(); }

  void begin_step(const image::StepInfo& step) override;
  void end_step(const image::StepInfo& step, bool cached, std::chrono::milliseconds took) override;
  void output(const image::StepInfo& step, std::string_view line) override;
  void transfer(const image::TransferInfo& transfer) override;
  void notice(std::string_view text) override;

  // The last lines that the step wrote which failed, if they have not been shown.
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

// "[2/7 builder] RUN make".
std::string step_text(const image::StepInfo& step);

}  // namespace adaptdl::cli
