// The thread that fits the goodput model and posts hints during training.
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

// How long the process waits for unposted hints when it leaves main. Tests increase it.
inline std::chrono::milliseconds last_post{1000};

// The thread starts with the first task. It is never destroyed, so it may outlive everything else. When the process
// leaves main, it waits up to last_post for hints that have not been posted yet, and then drops them. _Exit does not
// wait.
//
// Threading: all functions must be called from one thread.
class Background {
 public:
  static Background& instance();

  // Starts a fit. REQUIRES that none is pending.
  void begin_fit(std::vector<goodput::Observation> observations);
  bool fit_pending();
  // Waits for the pending fit and returns its result, or nullopt if it failed. If the fit has not started because the
  // thread is busy with a slow supervisor, the calling thread performs it.
  std::optional<goodput::PerfParams> finish_fit();

  // Posts hints, which replace any hints that are still queued.
  void post(http::Request hints);

  // Drops queued tasks. Waits for a running fit and drops its result.
  void forget();

 private:
  enum class Fit { kNone, kQueued, kRunning, kDone };

  Background() = default;
  void start();  // mutex_ is held
  void run();
  void post_now(const http::Request& hints);
  void stop();  // called when the process exits

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  bool stopping_ = false;
  bool posting_ = false;
  std::stop_source give_up_;  // stops the current post

  // Used only by the thread:
  bool http_ready_ = false;
  bool outage_ = false;  // whether the last post failed

  Fit fit_ = Fit::kNone;
  std::vector<goodput::Observation> observations_;
  std::optional<goodput::PerfParams> fitted_;
  std::optional<http::Request> hints_;
};

}  // namespace adaptdl::metrics
