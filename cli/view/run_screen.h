// RunScreen shows a run that `adaptdl run` started: notices, the replicas' output (each line with its replica's rank)
// and, on a terminal, a status line below.
//
// The replicas' standard output is written to standard output; their standard error, like all notices, is written to
// standard error. Each stream is colored if it is a suitable terminal. The status line is drawn on standard error, if
// that is a terminal that can redraw a line, at most ten times per second. The status line is wiped before other text
// appears, and redrawn afterwards.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "local/base/launch_observer.h"
#include "terminal/output_queue.h"

namespace adaptdl::cli {

class RunScreen : public sched::LaunchObserver {
 public:
  using Clock = std::chrono::steady_clock;

  // `replicas` is the job's initial number of replicas, for the status line.
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

  // Writes text that has several lines, such as a summary, to standard error.
  void print(std::string_view text);
  // Wipes the status line permanently and writes all pending text. Blocks until that is done.
  void close();

 private:
  // Beyond this size, lines are not shown. The queue gets this long only while the replicas are stopping: at other
  // times, the launcher does not read their output while the queue is full.
  static constexpr std::size_t kMaxQueued = 16 * OutputQueue::kFull;

  void put(int fd, std::string text);
  void wipe_status();
  std::string prefix(int rank, bool colour) const;

  int replicas_;
  bool colour_[3] = {};  // by descriptor
  bool status_wanted_ = false;
  bool status_drawn_ = false;
  bool omits_ = false;  // lines were not shown, because the output was not read
  Clock::time_point started_ = Clock::now();
  Clock::time_point drawn_at_{};
  nlohmann::json progress_ = nlohmann::json::object();
  OutputQueue queue_;
};

}  // namespace adaptdl::cli
