// Follows a trial's job until the job ends, beginning when the job starts or when the search finds it running.
//
// Starting a trial creates its job and volume claim, or resumes its suspended job. Stopping the trial suspends the job.
// While the job runs, this object follows the log of rank 0, and stores and delivers the results that the log contains.
// The job continues after this object is destroyed.
//
// Threading: the functions must be called from one thread. The trial's own threads call the Owner functions.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "cluster_tuner/cluster_calls.h"
#include "cluster_tuner/output_record.h"
#include "kube/jobs/submission.h"
#include "tuner/trial_runner.h"

namespace adaptdl::sched::tune {

class ClusterTrial {
 public:
  struct Owner {
    std::function<void(const nlohmann::json& job)> found;  // the job exists; may be called more than once
    std::function<void(TrialEvent event)> deliver;
    std::function<void(std::exception_ptr error)> fail;  // the search must end, e.g. because a result cannot be stored
  };

  // Starts the trial, whose job is `submission`. All references must outlive this object; its thread writes to
  // `output`.
  ClusterTrial(int number, kube::Submission submission, ClusterCalls& calls, OutputRecord& output, Owner owner);
  // Ends the threads without changing the job.
  ~ClusterTrial();
  ClusterTrial(const ClusterTrial&) = delete;
  ClusterTrial& operator=(const ClusterTrial&) = delete;

  // Begins to suspend the job, and returns immediately.
  void stop();
  // Tells the threads to end without delivering the trial's end, and returns immediately.
  void abandon();
  // Returns whether the trial's end has been delivered, or the job is no longer followed because of an error or
  // abandon().
  bool is_over() const noexcept { return over_; }

 private:
  void run(const std::stop_token& stop);
  void begin(const std::stop_token& stop);
  std::optional<nlohmann::json> find_job() const;
  nlohmann::json create();
  void resume(const nlohmann::json& job);
  void follow(const std::stop_token& stop);
  void read_rest(const std::stop_token& stop);
  void read_logs(bool follow, const std::stop_token& stop);
  bool is_replaced(const std::string& uid) const;
  std::optional<TrialEnd> how_ended(const std::optional<nlohmann::json>& job) const;
  void leave_suspended() const noexcept;
  void end(const TrialEnd& end);
  void suspend(const std::stop_token& stop);
  void note_found(const nlohmann::json& job);
  void note_begun();
  std::string job_path() const;

  const int number_;
  const kube::Submission submission_;
  ClusterCalls& calls_;
  OutputRecord& output_;
  const Owner owner_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool begun_ = false;
  std::string uid_;  // the job's uid; empty until the job is found
  std::atomic<bool> over_ = false;
  std::jthread follower_, stopper_;  // last, because they use all other members
};

}  // namespace adaptdl::sched::tune
