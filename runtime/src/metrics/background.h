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
// leaves main, hints that are not posted yet get a moment (last_post), and are then dropped. _Exit waits for nothing.
//
// Threading: all functions must be called from one thread.
class Background {
 public:
  static Background& instance();

  // Starts a fit. REQUIRES that none is pending.
  void begin_fit(std::vector<goodput::Observation> observations);
  bool fit_pending();
  // Waits for the pending fit and returns its result; nullopt if it failed. A fit that has not started, because the
  // thread is busy with a slow supervisor, is done by the calling thread.
  std::optional<goodput::PerfParams> finish_fit();

  // Posts hints, which replace those that are still queued.
  void post(http::Request hints);

  // Drops queued tasks, and the result of a running fit, for which it waits.
  void forget();

 private:
  enum class Fit { kNone, kQueued, kRunning, kDone };

  Background() = default;
  void start();  // mutex_ is held
  void run();
  void post_now(const http::Request& hints);
  void stop();  // at exit of the process

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  bool stopping_ = false;
  bool posting_ = false;
  std::stop_source give_up_;  // stops the current post

  // Used only by the thread:
  bool http_ready_ = false;
  bool outage_ = false;  // the last post failed

  Fit fit_ = Fit::kNone;
  std::vector<goodput::Observation> observations_;
  std::optional<goodput::PerfParams> fitted_;
  std::optional<http::Request> hints_;
};

}  // namespace adaptdl::metrics
