// How a run is getting on, as its launcher says it and as its record keeps it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace adaptdl::sched {

struct RunStatus {
  using Time = std::chrono::system_clock::time_point;

  std::string name;  // of its record; unique among the runs of this user's home
  // starting waiting running rescaling stopping restarting, and at its end done, failed or stopped. Of those who read
  // the record: lost, if the launcher was killed.
  std::string state = "starting";
  std::string why;                   // it is in that state, if there is something to say
  int replicas = 0;                  // now, on this machine
  int wanted = 0;                    // what is being worked towards; the same as `replicas` most of the time
  int min = 0, max = 0;              // the bounds of `wanted`; equal if the run is not elastic
  std::vector<std::string> devices;  // of the replicas, by rank; empty if there are none
  nlohmann::json progress = nlohmann::json::object();  // what the replica of the lowest rank reported last
  int restarts = 0;                                    // how often all replicas were started again
  double device_seconds = 0;                           // for which this launcher has held devices; see device_time.h
  Time started;
  std::optional<Time> ended;
  std::optional<int> exit_code;  // of the launcher, once it has ended

  pid_t pid = 0;                     // of the launcher
  std::string host;                  // where that is
  std::string checkpoints;           // a directory; empty: nothing is saved
  std::string logs;                  // a directory
  std::vector<std::string> command;  // as it was given
  std::string resume;                // a shell's line that goes on from the checkpoints; empty: there is none
};

// Whether a run in this state has come to its end (done, failed, stopped, lost).
bool has_ended(const RunStatus& status);

// All fields, times as "2025-01-31T12:00:00.123Z"; what is not known is null.
nlohmann::json to_json(const RunStatus& status);

// What to_json gave; a field that is missing or of another kind keeps its default. Throws nothing.
RunStatus run_status(const nlohmann::json& json);

}  // namespace adaptdl::sched
