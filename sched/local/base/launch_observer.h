// LaunchObserver receives everything that a launcher reports to the user.
//
// All functions are called on the launcher's main thread, and must not block: the observer keeps text that cannot be
// written yet, and the launcher waits until output_fd() can accept it. While congested() is true, the launcher does not
// read the replicas' output. The pipes then fill up and slow the replicas down. Replicas that have been asked to stop
// are an exception, since they could not save a checkpoint while they wait for the pipe; the observer must itself limit
// how much of their output it keeps.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace adaptdl::sched {

enum class Stream { kOut, kErr };

class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;

  // Called when the run's replicas have been started for the first time, or when the run is waiting for devices. May be
  // called more than once.
  virtual void started() {}
  // Called with the job's current number of replicas.
  virtual void replicas(int) {}
  // Called with a line of a replica's output without its newline, or with a piece of a very long line. `ends` is true
  // if `text` is the end of the line.
  virtual void line(int rank, Stream stream, std::string_view text, bool ends) = 0;
  // Called with a sentence from the launcher itself, such as a notice of a stop, a kill or a restart.
  virtual void notice(std::string_view text) = 0;
  // Called with the progress reported by the replica with the lowest rank on this machine (see adaptdl/progress.h).
  virtual void progress(const nlohmann::json& report) = 0;
  // Called at least ten times per second, and after the terminal's size has changed.
  virtual void tick() = 0;

  // Returns the descriptor to which pending text must be written, or -1 if no text is pending.
  virtual int output_fd() const = 0;
  // Writes as much as output_fd() accepts without waiting.
  virtual void write_output() = 0;
  virtual bool congested() const = 0;
  // Returns whether the reader of standard output has closed it.
  virtual bool output_closed() const = 0;
};

}  // namespace adaptdl::sched
