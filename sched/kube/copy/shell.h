// The remote end of a copy, where commands are run over connections that may break.
//
// File names are passed to scripts as arguments, never in their text, so that the shell does not interpret them. Each
// script knows how much input to read, and exits after reading that much.
//
// Threading: several threads may start commands concurrently; one thread may write to a Process while another reads.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "adaptdl/error.h"

namespace adaptdl::kube {

// Thrown if the connection has broken. The copy can be resumed.
class Broken : public Error {
  using Error::Error;
};

// Thrown if a stop was requested.
class Interrupted : public Error {
 public:
  Interrupted() : Error("interrupted") {}
};
// Throws Interrupted if a stop was requested.
void check(const std::stop_token& stop);

class Process {
 public:
  using Sink = std::function<void(std::string_view)>;
  virtual ~Process() = default;
  // Waits for output and passes it to the sinks. Returns false when the process has ended. Throws Broken, Error.
  virtual bool read(const Sink& out, const Sink& err) = 0;
  virtual void write(std::string_view bytes) = 0;
  // REQUIRES: read() returned false.
  virtual int exit_code() = 0;
};

class Shell {
 public:
  virtual ~Shell() = default;
  // Throws Broken, or Error if commands cannot be run.
  virtual std::unique_ptr<Process> start(const std::vector<std::string>& command, bool with_input) = 0;
  // The name for messages, such as "pod 'digits-0'".
  virtual std::string name() const = 0;
  // What to do if a program is missing, as a clause for messages.
  virtual std::string missing_program() const {
    return "the image lacks this program; use --image with an image that contains it, such as busybox";
  }
};

struct Outcome {
  int exit_code = 0;
  std::string out, err;
};

// Returns the command that runs a script with these arguments as $1, $2 and so on.
std::vector<std::string> script(std::string_view text, const std::vector<std::string>& arguments);

// Returns the next piece of the input; empty at its end.
using Feed = std::function<std::string_view()>;

// Writes the whole feed, or as much as the process accepts before it ends. A later read() reports whether the process
// has ended or the connection has broken.
void feed_to(Process& process, const Feed& feed);

// Runs a script until it ends. If `feed` is set, it provides the script's input.
Outcome run(Shell& shell, std::string_view text, const std::vector<std::string>& arguments, const Feed& feed = {});

// Throws an Error that gives the reason from the shell's output and, if known, what to do.
[[noreturn]] void refuse(const Shell& shell, const std::string& action, const Outcome& outcome);

}  // namespace adaptdl::kube
