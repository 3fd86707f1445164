// RunStatus is the status of a run, as its launcher reports it and as its record stores it.
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

  std::string name;  // of its record; unique among the runs in this user's home
  // It is starting, waiting, running, rescaling, stopping or restarting, and at the end done, failed or stopped. When
  // the record is read, it is lost if the launcher was killed.
  std::string state = "starting";
  std::string why;                                     // reason for that state, if there is one
  int replicas = 0;                                    // now, on this machine
  int wanted = 0;                                      // target; the same as `replicas` most of the time
  int min = 0, max = 0;                                // the bounds of `wanted`; equal if the run is not elastic
  std::vector<std::string> devices;                    // of the replicas, by rank; empty if they need none
  nlohmann::json progress = nlohmann::json::object();  // what the replica of the lowest rank reported last
  int restarts = 0;                                    // how often all replicas were started again
  double device_seconds = 0;                           // that this launcher has held devices for; see device_time.h
  Time started;
  std::optional<Time> ended;
  std::optional<int> exit_code;  // of the launcher, once it has ended

  pid_t pid = 0;                     // of the launcher
  std::string host;                  // of the launcher
  std::string checkpoints;           // a directory; empty: nothing is saved
  std::string logs;                  // a directory
  std::vector<std::string> command;  // as it was given
  std::string resume;                // shell command that continues from the checkpoints; empty: none
};

// Returns whether a run in this state has ended (done, failed, stopped, lost).
bool has_ended(const RunStatus& status);

// Returns all fields, with times as "2025-01-31T12:00:00.123Z"; unknown values are null.
nlohmann::json to_json(const RunStatus& status);

// Reads what to_json() returned; a field that is missing or of another type keeps its default. Throws nothing.
RunStatus run_status(const nlohmann::json& json);

}  // namespace adaptdl::sched
