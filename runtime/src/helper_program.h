// Helper programs of others, which are asked something and answer on their standard output: credential helpers and
// plugins.
//
// Threading: may be called while other threads run. A helper's standard error is this process's.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace adaptdl {

struct HelperProgram {
  std::string name;                                       // looked for in the PATH, unless there is a slash in it
  std::vector<std::string> arguments;                     // behind its name
  std::optional<std::vector<std::string>> environment{};  // as "NAME=value"; none: this process's
  // All that it can read, of at most 64 KiB; none: this process's own input, and so the terminal's where that is one.
  std::optional<std::string> input{};
};

struct HelperOutcome {
  enum class End { kExited, kSignalled, kNotStarted, kTimeOver, kStopped, kTooMuch };
  End end;
  int code;            // the exit code, the signal, or the errno of why it was not started
  std::string output;  // of one that exited
};

inline constexpr std::size_t kMostHelperOutput = std::size_t{1} << 20;

// Runs a helper until it has closed its output and ended. One that is not done after `patience` or at a stop, or
// prints more than kMostHelperOutput, is killed, with all that it started unless it has this process's own input: to be
// asked at a terminal, it has to be of the terminal's foreground group.
HelperOutcome run_helper(const HelperProgram& program, std::chrono::milliseconds patience,
                         const std::stop_token& stop = {});

}  // namespace adaptdl
