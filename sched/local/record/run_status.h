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

  std::string name;  // name of the run's record; unique among this user's runs
  // The state is starting, waiting, running, rescaling, stopping or restarting, and in the end done, failed or stopped.
  // If the launcher was killed, readers of the record see the state "lost".
  std::string state = "starting";
  std::string why;                                     // reason for the state; may be empty
  int replicas = 0;                                    // current number of replicas
  int wanted = 0;                                      // target number of replicas; usually the same as `replicas`
  int min = 0, max = 0;                                // the bounds of `wanted`; equal if the run is not elastic
  std::vector<std::string> devices;                    // the replicas' devices, by rank; empty if they need none
  nlohmann::json progress = nlohmann::json::object();  // last report of the replica with the lowest rank
  int restarts = 0;                                    // how many times all replicas were restarted
  double device_seconds = 0;                           // device-seconds used under this launcher; see device_time.h
  Time started;
  std::optional<Time> ended;
  std::optional<int> exit_code;  // the launcher's, once it has ended

  pid_t pid = 0;                     // the launcher's process id
  std::string host;                  // the launcher's host
  std::string checkpoints;           // checkpoint directory; empty: nothing is saved
  std::string logs;                  // log directory
  std::vector<std::string> command;  // as the user entered it
  std::string resume;                // shell command that continues from the checkpoints, if possible
};

// Returns whether a run in this state has ended (done, failed, stopped, lost).
bool has_ended(const RunStatus& status);

// Returns all fields, with times formatted as "2025-01-31T12:00:00.123Z"; unknown values are null.
nlohmann::json to_json(const RunStatus& status);

// Reads the result of to_json(). A field that is missing or has another type keeps its default. Never throws.
RunStatus run_status(const nlohmann::json& json);

}  // namespace adaptdl::sched
