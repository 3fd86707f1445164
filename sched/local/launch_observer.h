// What a launcher tells whoever shows it to people.
//
// Everything is called on the launcher's one thread, between its waits, and must not block: text that cannot be written
// yet is kept, and the launcher waits for `output_fd` to take it. While `congested`, it reads nothing from the
// replicas, whose pipes then fill up and hold them back.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace adaptdl::sched {

enum class Stream { kOut, kErr };

class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;

  // The replicas were started for the first time: from now on the run is on its way.
  virtual void started() {}
  // So many replicas the job has now.
  virtual void replicas(int) {}
  // A line of a replica's output, without its newline, or a piece of a very long one: `ends` says whether the line
  // ended.
  virtual void line(int rank, Stream stream, std::string_view text, bool ends) = 0;
  // A sentence of the launcher's own: a stop, a kill, a restart.
  virtual void notice(std::string_view text) = 0;
  // What the replica of the lowest rank here reported (see adaptdl/progress.h).
  virtual void progress(const nlohmann::json& report) = 0;
  // Called at least ten times a second, and after the terminal changed its size.
  virtual void tick() = 0;

  // The descriptor that text waits for; -1 if none waits.
  virtual int output_fd() const = 0;
  // Writes what output_fd() takes without waiting.
  virtual void write_output() = 0;
  virtual bool congested() const = 0;
  // Whether the reader of the standard output went away.
  virtual bool output_closed() const = 0;
};

}  // namespace adaptdl::sched
