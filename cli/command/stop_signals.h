// Ctrl-C, SIGTERM and SIGHUP as the wish to stop, for a command that has something to take away first.
//
// The work sees the token and ends by itself. If it has not some seconds later, or at a second signal, `last_resort` is
// done in its place and the process ends.
//
// Threading: made before other threads, which inherit its mask of signals. Lifetime: one at a time.
#pragma once

#include <atomic>
#include <functional>
#include <stop_token>
#include <thread>

namespace adaptdl::cli {

class StopSignals {
 public:
  explicit StopSignals(std::function<void()> last_resort);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  // Of a process that a signal stopped: 128 and its number; 0 if none came.
  int exit_code() const { return signal_ == 0 ? 0 : 128 + signal_; }

 private:
  void watch(std::stop_token over);

  std::function<void()> last_resort_;
  std::stop_source source_;
  std::atomic<int> signal_ = 0;
  std::jthread watcher_;
};

}  // namespace adaptdl::cli
