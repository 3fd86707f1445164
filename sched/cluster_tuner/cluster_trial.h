// Follows the job of a trial from its start, or from when the search found it running, to its end.
//
// To start a trial, the job and the claim of its volume are created, or the suspended job is resumed. To stop it, the
// job is suspended. Meanwhile the log of rank 0 is followed, and its results are stored and delivered. The job does not
// depend on this object: it continues after the object is destroyed.
//
// Threading: the owner calls the functions from one thread. The functions of Owner are called by threads of the trial.
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
#include "kube/submission.h"
#include "tuner/trial_runner.h"

namespace adaptdl::sched::tune {

class ClusterTrial {
 public:
  struct Owner {
    std::function<void(const nlohmann::json& job)> found;  // the job exists; may be called more than once
    std::function<void(TrialEvent event)> deliver;
    std::function<void(std::exception_ptr error)> fail;  // the search must end; for example, a result cannot be stored
  };

  // Starts the trial, whose job is `submission`. All references must outlive this object; its thread uses `output`.
  ClusterTrial(int number, kube::Submission submission, ClusterCalls& calls, OutputRecord& output, Owner owner);
  // Ends the threads and leaves the job as it is.
  ~ClusterTrial();
  ClusterTrial(const ClusterTrial&) = delete;
  ClusterTrial& operator=(const ClusterTrial&) = delete;

  // Starts to suspend the job. Returns at once.
  void stop();
  // Asks the threads to end without delivering an end of the trial. Returns at once.
  void abandon();
  // Returns whether the end was delivered, or the trial is no longer followed because of an error or abandon().
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
  std::string uid_;  // of the job; empty until it was found
  std::atomic<bool> over_ = false;
  std::jthread follower_, stopper_;  // last, because they use all other members
};

}  // namespace adaptdl::sched::tune
