// Trials as runs of this machine: each is an `adaptdl run` of its own, so that they share the devices, grow and shrink
// while they train, and can be seen in `adaptdl ls`.
//
//   STUDY/trials/N/params.json     the trial's parameters
//   STUDY/trials/N/results.jsonl   what its program reported (adaptdl/report.h)
//   STUDY/trials/N/checkpoints/    from which it continues
//   STUDY/trials/N/logs/           what its replicas wrote; a line of JSON that has the metric is a result too
//   STUDY/trials/N/run.log         what `adaptdl run` said
//
// When the process of the runner dies, each run gets SIGTERM: it saves a checkpoint and ends.
//
// Threading: one thread, which must live as long as the runs.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tuner/trial_results.h"
#include "tuner/trial_runner.h"

namespace adaptdl::sched::tune {

struct LocalTrialPlan {
  std::string study;                                  // the runs are called STUDY-N
  std::filesystem::path directory;                    // of the study
  std::filesystem::path launcher = "/proc/self/exe";  // the `adaptdl` command
  std::vector<std::string> options;                   // of `adaptdl run`
  std::vector<std::string> command;                   // see command_template.h
  std::filesystem::path working_directory;            // of the command
  std::string metric;
};

class LocalTrialRunner final : public TrialRunner {
 public:
  explicit LocalTrialRunner(LocalTrialPlan plan);
  // Stops what is still running, and waits for it.
  ~LocalTrialRunner() override;
  LocalTrialRunner(const LocalTrialRunner&) = delete;
  LocalTrialRunner& operator=(const LocalTrialRunner&) = delete;

  void start(int number, const Values& values) override;
  void stop(int number) override;
  bool is_active(int number) const override;
  std::vector<TrialEvent> poll() override;
  void discard(int number) override;

  // Kills what is running, after stop(). What was not saved yet is lost.
  void kill();

  std::filesystem::path trial_directory(int number) const;

 private:
  std::vector<std::string> run_arguments(int number, const Values& values) const;
  TrialEnd how_ended(int number, int status) const;

  const LocalTrialPlan plan_;
  std::map<int, std::unique_ptr<TrialResults>> results_;
  std::map<int, pid_t> active_;
};

}  // namespace adaptdl::sched::tune
