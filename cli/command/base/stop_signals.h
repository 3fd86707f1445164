// StopSignals turns Ctrl-C, SIGTERM and SIGHUP into a request to stop, for a command that must clean up first.
//
// The command must check the stop token, and end when a stop is requested. If it has not ended after a few seconds, or
// if a second signal arrives, `last_resort` is called and the process exits.
//
// Threading: the object must be created before other threads, which inherit its signal mask. Lifetime: only one object
// may exist at a time.
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
  // Returns 128 plus the number of the first signal, or 0 if no signal has arrived.
  int exit_code() const { return signal_ == 0 ? 0 : 128 + signal_; }

 private:
  void watch(std::stop_token over);

  std::function<void()> last_resort_;
  std::stop_source source_;
  std::atomic<int> signal_ = 0;
  std::jthread watcher_;
};

}  // namespace adaptdl::cli
