// RunScreen shows a run of `adaptdl run`: the lines of the replicas, each with its rank, notices, and on a terminal a
// status line below them.
//
// Lines keep their stream: standard output goes to standard output, errors and notices go to standard error. Colour is
// decided for each of them. The status line is drawn on standard error, if that is a terminal that can redraw a line,
// at most ten times a second; it is wiped before any other text appears and drawn again after it.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "local/launch_observer.h"
#include "terminal/output_queue.h"

namespace adaptdl::cli {

class RunScreen : public sched::LaunchObserver {
 public:
  using Clock = std::chrono::steady_clock;

  // `replicas` is the initial number of replicas of the job, for the status line.
  explicit RunScreen(int replicas);

  void replicas(int count) override { replicas_ = count; }
  void line(int rank, sched::Stream stream, std::string_view text, bool ends) override;
  void notice(std::string_view text) override;
  void progress(const nlohmann::json& report) override { progress_ = report; }
  void tick() override;
  int output_fd() const override { return queue_.fd(); }
  void write_output() override { queue_.write_some(); }
  bool congested() const override { return queue_.full(); }
  bool output_closed() const override;

  // Writes a text of several lines to standard error, such as a summary.
  void print(std::string_view text);
  // Wipes the status line for good and writes all pending text, and blocks as long as that takes.
  void close();

 private:
  void put(int fd, std::string text);
  void wipe_status();
  std::string prefix(int rank, bool colour) const;

  int replicas_;
  bool colour_[3] = {};  // by descriptor
  bool status_wanted_ = false;
  bool status_drawn_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point drawn_at_{};
  nlohmann::json progress_ = nlohmann::json::object();
  OutputQueue queue_;
};

}  // namespace adaptdl::cli
