// The thread beside training, which fits the goodput model and posts hints.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "adaptdl/goodput.h"
#include "http/http.h"

namespace adaptdl::metrics {

// How long hints that were not posted yet get when the process leaves main. Tests lengthen it.
inline std::chrono::milliseconds last_post{1000};

// Started at its first task, and never destroyed, so that the thread may outlive everything else. When the process
// leaves main, hints that were not posted yet get a moment (last_post), and are then given up. After _Exit nothing is
// waited for.
//
// Threading: everything is to be called from one thread.
class Background {
 public:
  static Background& instance();

  // Begins a fit. REQUIRES that none is pending.
  void begin_fit(std::vector<goodput::Observation> observations);
  bool fit_pending();
  // The result of the pending fit, none if it failed; waits for it. A fit that has not started, because the thread is
  // busy with a slow supervisor, is done here and now.
  std::optional<goodput::PerfParams> finish_fit();

  // Posts hints, in place of those that still wait for their turn.
  void post(http::Request hints);

  // Drops what was not started, and the result of what was.
  void forget();

 private:
  enum class Fit { kNone, kQueued, kRunning, kDone };

  Background() = default;
  void start();  // mutex_ is held
  void run();
  void post_now(const http::Request& hints);
  void stop();  // at the exit of the process

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  bool stopping_ = false;
  bool posting_ = false;
  std::stop_source give_up_;  // the post under way

  // Used by the thread alone:
  bool http_ready_ = false;
  bool outage_ = false;  // the last post failed

  Fit fit_ = Fit::kNone;
  std::vector<goodput::Observation> observations_;
  std::optional<goodput::PerfParams> fitted_;
  std::optional<http::Request> hints_;
};

}  // namespace adaptdl::metrics
