// The other end of a copy: a place that runs commands, with connections to it that may break.
//
// Names of files go to scripts as arguments, never into their text, so that no name can be anything but a name. A
// script ends by itself: it knows how much it is to read.
//
// Threading: commands may be started by several threads at once; a Process may be written by one while another reads.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "adaptdl/error.h"

namespace adaptdl::kube {

// The connection broke; what was under way can be gone on with.
class Broken : public Error {
  using Error::Error;
};

// A stop was asked for.
class Interrupted : public Error {
 public:
  Interrupted() : Error("interrupted") {}
};
// Throws Interrupted if so.
void check(const std::stop_token& stop);

class Process {
 public:
  using Sink = std::function<void(std::string_view)>;
  virtual ~Process() = default;
  // Waits for output and passes it on. False: it has ended. Throws Broken, Error.
  virtual bool read(const Sink& out, const Sink& err) = 0;
  virtual void write(std::string_view bytes) = 0;
  // REQUIRES read() said false.
  virtual int exit_code() = 0;
};

class Shell {
 public:
  virtual ~Shell() = default;
  // Throws Broken, and Error if commands cannot be run there.
  virtual std::unique_ptr<Process> start(const std::vector<std::string>& command, bool with_input) = 0;
  // For messages: "pod digits-0".
  virtual std::string name() const = 0;
};

struct Outcome {
  int exit_code = 0;
  std::string out, err;
};

// The command that runs a script with these arguments as $1, $2 and so on.
std::vector<std::string> script(std::string_view text, const std::vector<std::string>& arguments);

// Gives the next piece of what is to be sent; nothing: that was all.
using Feed = std::function<std::string_view()>;

// Writes it all, or what is taken of it: a process that has ended takes no more. Whether it has, or the connection
// broke, reading tells.
void feed_to(Process& process, const Feed& feed);

// Runs a script to its end, and feeds it if there is anything to feed.
Outcome run(Shell& shell, std::string_view text, const std::vector<std::string>& arguments, const Feed& feed = {});

// Throws Error with what the shell said of why `action` failed, and the way out where it is known.
[[noreturn]] void refuse(const Shell& shell, const std::string& action, const Outcome& outcome);

}  // namespace adaptdl::kube
