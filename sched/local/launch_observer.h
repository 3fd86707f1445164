// LaunchObserver receives what a launcher reports to the user.
//
// All functions are called on the launcher's main thread, between its waits, and must not block: text that cannot be
// written yet is kept, and the launcher waits until `output_fd` can accept it. While `congested`, the launcher reads no
// output of the replicas, whose pipes then fill up and hold them back.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace adaptdl::sched {

enum class Stream { kOut, kErr };

class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;

  // The run is under way: its replicas were started for the first time, or it waits for devices. May be called again.
  virtual void started() {}
  // The job now has this many replicas.
  virtual void replicas(int) {}
  // A line of a replica's output, without its newline, or a piece of a very long one: `ends` is true if the line ended.
  virtual void line(int rank, Stream stream, std::string_view text, bool ends) = 0;
  // A sentence from the launcher itself, about a stop, a kill or a restart.
  virtual void notice(std::string_view text) = 0;
  // The progress that the replica of the lowest rank on this machine reported (see adaptdl/progress.h).
  virtual void progress(const nlohmann::json& report) = 0;
  // Called at least ten times a second, and after the terminal changed its size.
  virtual void tick() = 0;

  // Returns the descriptor that text waits for, or -1 if none waits.
  virtual int output_fd() const = 0;
  // Writes as much as output_fd() accepts without waiting.
  virtual void write_output() = 0;
  virtual bool congested() const = 0;
  // Returns whether the reader of the standard output went away.
  virtual bool output_closed() const = 0;
};

}  // namespace adaptdl::sched
