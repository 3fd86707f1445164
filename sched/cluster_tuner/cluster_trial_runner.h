// Runs trials as cluster jobs. The cluster's operator divides the devices among them.
//
//   STUDY/trials/N/output.jsonl   the results of trial N (see output_record.h)
//
// The jobs outlive the search: while no search is running, trials continue. The next search takes them over, and reads
// their output from the logs of the pods that still exist.
//
// Threading: the functions must be called from one thread. Each active trial has its own thread.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cluster_tuner/cluster_calls.h"
#include "cluster_tuner/cluster_trial.h"
#include "cluster_tuner/output_record.h"
#include "cluster_tuner/trial_job.h"
#include "kube/api/client.h"
#include "kube/jobs/job.h"
#include "tune/study/study.h"
#include "tuner/trial_runner.h"

namespace adaptdl::sched::tune {

struct ClusterTrialPlan {
  TrialJobPlan job;
  std::filesystem::path directory;  // the study's directory
  std::string metric;
  std::function<void(std::string_view)> notice = [](std::string_view) {};  // called by poll(), settle() and any_left()
};

class ClusterTrialRunner final : public SearchRunner {
 public:
  // The client must outlive this object. Throws the same errors as Client if the study's jobs cannot be listed.
  ClusterTrialRunner(kube::Client& client, ClusterTrialPlan plan);
  // Does not change the jobs.
  ~ClusterTrialRunner() override;
  ClusterTrialRunner(const ClusterTrialRunner&) = delete;
  ClusterTrialRunner& operator=(const ClusterTrialRunner&) = delete;

  // Takes over the jobs that an earlier search left, and stops those whose trials are not running according to the
  // study. Must be called before any other function.
  void adopt(const Study& study);

  void start(int number, const Values& values) override;
  void stop(int number) override;
  // Does nothing, because the cluster's operator divides the devices.
  void set_share(int, const RunShare&) override {}
  bool is_active(int number) const override { return trials_.contains(number); }
  std::vector<TrialEvent> poll() override;
  // Deletes the job and its volume in the background.
  void discard(int number) override;
  void release(int number) override { outputs_.erase(number); }

  bool has_more() const noexcept override { return false; }
  bool settle() override;
  void stop_all() override;
  bool any_left() override;
  // Does not change the jobs; they save their checkpoints without this object.
  void kill() override;
  std::optional<RunStatus> status(int number) const override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Holding {
    std::optional<kube::Time> since;  // when the job received its devices, by the cluster's clock
    Clock::time_point seen;           // the same time by this machine's clock
  };

  void begin(int number, kube::Submission submission);
  OutputRecord& output_of(int number);
  void remove_jobs(const std::stop_token& stop);
  void remove_job(int number, const std::stop_token& stop);
  void watch_jobs(const std::stop_token& stop);
  void note_watch(bool answered);
  void put_job(const nlohmann::json& object);
  void put_notice(const std::string& text);
  void give_notices();
  std::optional<RunUsage> usage_of(int number);

  const ClusterTrialPlan plan_;
  ClusterCalls calls_;

  mutable std::mutex mutex_;  // guards the members from here to `wake_`
  std::map<int, kube::Job> jobs_;
  std::map<int, std::string> claims_;  // by trial: the volume claim of its job, until both are removed
  std::map<int, Holding> holding_;
  std::vector<TrialEvent> events_;
  std::exception_ptr failure_;
  std::deque<std::string> notices_;
  std::deque<int> removals_;                      // trials whose jobs must be removed; the first is in progress
  std::optional<Clock::time_point> interrupted_;  // when the watch of the jobs was interrupted
  std::condition_variable_any wake_;

  std::map<int, std::unique_ptr<OutputRecord>> outputs_;
  std::map<int, std::unique_ptr<ClusterTrial>> trials_;  // active trials
  Clock::time_point usage_read_{};
  std::jthread watcher_, remover_;  // last, because they use all other members
};

}  // namespace adaptdl::sched::tune
