// A helper process: a Python program that answers requests for which Python libraries are needed. Requests and answers
// are JSON lines.
//
// Its input and output are the two directions of a socket. It runs in its own session, so that Ctrl-C at a terminal
// does not reach it, and it is killed when the thread that started it ends.
//
// An answer may take minutes, so waiting for it has no time limit. However, once a stop signal (SIGINT, SIGTERM,
// SIGHUP) is pending in this thread, which must have blocked it, the helper is killed unless it answers within `grace`.
//
// Errors: Error if the helper ends (the message contains how it ended and its last line on standard error) or sends a
// line that is not a JSON object; HelperInterrupted if the helper was killed because of a signal. No function may be
// called after an error.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adaptdl/error.h"
#include "base/fd.h"
#include "local/base/lines.h"

namespace adaptdl::sched::tune {

// A stop signal has arrived and is still pending.
class HelperInterrupted : public Error {
 public:
  HelperInterrupted() : Error("the helper process was interrupted before it answered") {}
};

class PythonHelper {
 public:
  static constexpr std::chrono::milliseconds kGrace{10'000};

  // Starts a program, which is searched for in PATH unless its name contains a slash. Throws UsageError if it does not
  // exist, and Error if it cannot be started.
  explicit PythonHelper(const std::vector<std::string>& command, std::chrono::milliseconds grace = kGrace);
  // Kills the helper and all processes in its process group.
  ~PythonHelper();
  PythonHelper(const PythonHelper&) = delete;
  PythonHelper& operator=(const PythonHelper&) = delete;

  // Returns the helper's next line.
  nlohmann::json receive();
  // Sends a request and returns the answer.
  nlohmann::json ask(const nlohmann::json& request);
  void set_grace(std::chrono::milliseconds grace) noexcept { grace_ = grace; }

 private:
  void wait();
  void send_some();
  void receive_some();
  void read_errors();
  void check_signals();
  [[noreturn]] void fail_ended();
  std::string last_error() const;
  int end();

  pid_t pid_ = -1;
  Fd socket_, errors_;
  std::string to_send_, received_;
  LineSplitter error_lines_;
  LastLines last_errors_;
  std::chrono::milliseconds grace_;
  std::optional<std::chrono::steady_clock::time_point> signalled_;  // when a signal became pending
};

}  // namespace adaptdl::sched::tune
