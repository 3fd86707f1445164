// Runs trials on this machine. Each trial is a separate `adaptdl run`, so that trials share the devices, grow and
// shrink while they train, and are listed by `adaptdl ls`.
//
//   STUDY/trials/N/params.json     the trial's parameters
//   STUDY/trials/N/checkpoints/    the checkpoints from which the trial continues
//   STUDY/trials/N/run.log         the standard error of `adaptdl run`
//   STUDY/trials/N/logs/           the output of its replicas
//
// The directory also contains the trial's results (see trial_results.h).
//
// When the runner's process dies, each run receives SIGTERM, saves a checkpoint and ends. Its record remains, so that
// the next search knows how the run ended. A run belongs to a trial if its checkpoints are in the trial's directory;
// other runs are left alone.
//
// Threading: the runner must be used by one thread, which must outlive the runs, because they receive SIGTERM when that
// thread ends.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "local/record/run_record.h"
#include "tuner/share_sender.h"
#include "tuner/trial_results.h"
#include "tuner/trial_runner.h"

namespace adaptdl::sched::tune {

struct LocalTrialPlan {
  std::string study;                                  // the runs are named STUDY-N
  std::filesystem::path directory;                    // the study's directory
  std::filesystem::path launcher = "/proc/self/exe";  // the `adaptdl` command
  std::vector<std::string> options;                   // for `adaptdl run`
  std::vector<std::string> command;                   // see command_template.h
  std::filesystem::path working_directory;            // for the command
  std::string metric;
  std::function<void(std::string_view)> notice = [](std::string_view) {};  // receives a line about an unreadable file
};

class LocalTrialRunner final : public SearchRunner {
 public:
  explicit LocalTrialRunner(LocalTrialPlan plan);
  // Stops the runs that are still active, and waits for them.
  ~LocalTrialRunner() override;
  LocalTrialRunner(const LocalTrialRunner&) = delete;
  LocalTrialRunner& operator=(const LocalTrialRunner&) = delete;

  void start(int number, const Values& values) override;
  void stop(int number) override;
  void set_share(int number, const RunShare& share) override;
  bool is_active(int number) const override;
  std::vector<TrialEvent> poll() override;
  void discard(int number) override;
  void release(int number) override { results_.erase(number); }

  // Returns the runs that an earlier search of the study left behind, which may still be running. Throws UsageError if
  // a run that does not belong to the study has the name of one of the first `trials` trials.
  std::vector<RunEntry> previous_runs(int trials) const;
  // Returns whether a launcher that an earlier search started is still running. It may be about to begin a run that
  // previous_runs() does not return yet.
  bool any_previous_launcher() const;
  // Makes poll() deliver the usage of a run that has ended, and its end if the program ended on its own. `trials` is
  // the number of trials in the study. If the run's trial number is not below `trials`, only the run's record is
  // removed.
  void adopt(const RunEntry& run, std::size_t trials);

  bool has_more() const noexcept override { return has_more_; }
  // Removes the records of the runs whose end poll() has delivered; a record remains if another process has locked it.
  bool settle() override;
  void stop_all() override;
  bool any_left() override;
  // Kills the runs that are still active after stop().
  void kill() override;
  // Reads the run's record, which is written at most once per second.
  std::optional<RunStatus> status(int number) const override;

  std::filesystem::path trial_directory(int number) const;

 private:
  struct Active {
    pid_t pid = 0;                // 0 once it has ended
    std::optional<TrialEnd> end;  // delivered after its results
    ShareSender share;
    std::chrono::steady_clock::time_point usage_read{};
    bool may_miss_results = false;  // its end is delivered even if files cannot be read yet
  };

  std::vector<std::string> run_arguments(int number, const Values& values) const;
  bool poll_run(int number, Active& run, std::vector<TrialEvent>& events);
  TrialEnd how_ended(int number, int status) const;
  TrialEnd how_failed(int number, const std::string& why) const;
  TrialResults& results_of(int number);
  void check_run_name(int number) const;
  bool is_own(const RunEntry& run, int number) const;
  std::optional<RunEntry> find_record(int number) const;
  std::optional<RunUsage> usage_of(int number, bool is_last) const;

  const LocalTrialPlan plan_;
  std::map<int, std::unique_ptr<TrialResults>> results_;
  std::map<int, Active> active_;
  std::set<int> ended_;    // ended trials whose records still exist
  std::set<int> adopted_;  // trials that can continue; the usage of their last run has not been delivered yet
  bool has_more_ = false;
};

}  // namespace adaptdl::sched::tune
