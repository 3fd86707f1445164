// Runs external helper programs, such as credential helpers and plugins, which answer a request on standard output.
//
// Threading: run_helper() may be called while other threads are running. A helper inherits this process's standard
// error.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace adaptdl {

struct HelperProgram {
  std::string name;                                       // looked up in PATH unless it contains a slash
  std::vector<std::string> arguments;                     // without the program's name
  std::optional<std::vector<std::string>> environment{};  // as "NAME=value"; nullopt: this process's environment
  // The helper's complete standard input, at most 64 KiB. If nullopt, the helper inherits this process's standard
  // input, which may be a terminal.
  std::optional<std::string> input{};
};

struct HelperOutcome {
  enum class End { kExited, kSignalled, kNotStarted, kTimeOver, kStopped, kTooMuch };
  End end;
  int code;            // exit code, signal, or the errno of a failed start
  std::string output;  // empty unless it exited
};

inline constexpr std::size_t kMaxHelperOutput = std::size_t{1} << 20;

// Runs a helper until it has closed its output and ended. The helper is killed if that takes longer than `patience`, if
// a stop is requested, or if it prints more than kMaxHelperOutput bytes. The processes that the helper started are
// also killed, unless the helper inherits the standard input: in this case, it must stay in the terminal's foreground
// process group to be able to prompt the user.
HelperOutcome run_helper(const HelperProgram& program, std::chrono::milliseconds patience,
                         const std::stop_token& stop = {});

}  // namespace adaptdl
