// Trials as runs of this machine: each is an `adaptdl run` of its own, so that they share the devices, grow and shrink
// while they train, and can be seen in `adaptdl ls`.
//
//   STUDY/trials/N/params.json     the trial's parameters
//   STUDY/trials/N/checkpoints/    from which it continues
//   STUDY/trials/N/run.log         what `adaptdl run` said
//   STUDY/trials/N/logs/           what its replicas wrote
//
// A trial's results are in its directory, too (see trial_results.h).
//
// When the process of the runner dies, each run gets SIGTERM: it saves a checkpoint and ends. Its record stays, and
// says to the next search how it ended. A run belongs to a trial if its checkpoints do; other runs are left alone.
//
// Threading: one thread, which must live as long as the runs.
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

#include "local/run_record.h"
#include "tuner/share_sender.h"
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
  std::function<void(std::string_view)> notice = [](std::string_view) {};  // gets a line about what cannot be read
};

class LocalTrialRunner final : public SearchRunner {
 public:
  explicit LocalTrialRunner(LocalTrialPlan plan);
  // Stops what is still running, and waits for it.
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

  // The runs that an earlier search of the study left, which may still be running. Throws UsageError if the run of
  // something else has the name of one of the first `trials` trials.
  std::vector<RunEntry> previous_runs(int trials) const;
  // Whether a launcher that an earlier search started still runs. It may be about to begin a run that previous_runs()
  // does not return yet.
  bool any_previous_launcher() const;
  // Has poll() deliver what that run, which has ended, used, and how it ended if it ended by itself.
  // `trials`: how many there are in the study; runs of others just lose their record.
  void adopt(const RunEntry& run, std::size_t trials);

  bool has_more() const noexcept override { return has_more_; }
  // Removes the records of the runs whose end poll() has delivered; a record that another process has locked stays.
  bool settle() override;
  void stop_all() override;
  bool any_left() override;
  // Kills what is running, after stop().
  void kill() override;
  // By the run's record, which is written at most once per second.
  std::optional<RunStatus> status(int number) const override;

  std::filesystem::path trial_directory(int number) const;

 private:
  struct Active {
    pid_t pid = 0;                // 0: it has ended
    std::optional<TrialEnd> end;  // to be delivered after its results
    ShareSender share;
    std::chrono::steady_clock::time_point usage_read{};
    bool may_miss_results = false;  // its end does not wait for files that cannot be read at present
  };

  std::vector<std::string> run_arguments(int number, const Values& values) const;
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
  std::set<int> ended_;    // whose records are still there
  std::set<int> adopted_;  // with records of runs that can continue, whose usage was not delivered yet
  bool has_more_ = false;
};

}  // namespace adaptdl::sched::tune
