#include "cluster_tuner/cluster_trial.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "adaptdl/error.h"
#include "cluster_tuner/trial_job.h"
#include "http/http.h"
#include "kube/api/json_fields.h"
#include "kube/api/resource.h"
#include "kube/jobs/job_logs.h"

namespace adaptdl::sched::tune {
namespace {

using nlohmann::json;

// How long to wait before reading a log again if the log has ended but the job has not.
constexpr std::chrono::milliseconds kFollowAgain{500};
// How long to retry reading the log of a trial that has ended.
constexpr std::chrono::seconds kReadLog{30};

// Thrown if the job's name belongs to another object. Not derived from Error, because calls that throw an Error are
// retried.
class Taken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown if a result cannot be stored. Not derived from Error, because calls that throw an Error are retried.
struct Unstored {
  std::exception_ptr why;
};

constexpr char kExists[] = "AlreadyExists";

bool is_of_trial(const json& job, const json& trial) {
  for (const char* const label : {kStudyIdLabel, kTrialLabel})
    if (kube::text_field(job, {"metadata", "labels", label}) != kube::text_field(trial, {"metadata", "labels", label}))
      return false;
  return true;
}

// Returns a merge patch that the API server refuses if the name now belongs to another job.
json suspension(const std::string& uid, bool suspend) {
  return {{"metadata", {{"uid", uid}}}, {"spec", {{"suspend", suspend}}}};
}

}  // namespace

ClusterTrial::ClusterTrial(int number, kube::Submission submission, ClusterCalls& calls, OutputRecord& output,
                           Owner owner)
    : number_(number),
      submission_(std::move(submission)),
      calls_(calls),
      output_(output),
      owner_(std::move(owner)),
      follower_([this](const std::stop_token& stop) { run(stop); }) {}

ClusterTrial::~ClusterTrial() { abandon(); }

void ClusterTrial::abandon() {
  over_ = true;
  follower_.request_stop();
  stopper_.request_stop();
}

std::string ClusterTrial::job_path() const {
  return kube::path(kube::kAdaptDLJobs, submission_.name_space(), submission_.name());
}

void ClusterTrial::run(const std::stop_token& stop) {
  try {
    for (const Result& result : output_.take_stored()) owner_.deliver({number_, result});
    begin(stop);
    note_begun();
    for (;;) {
      follow(stop);
      const auto now = calls_.persist(stop, [this] { return find_job(); });
      if (const auto how = how_ended(now)) {
        read_rest(stop);
        if (now) {
          const double seconds = kube::parse_job(*now).usage.gpu_seconds;
          owner_.deliver({number_, RunUsage{kube::text_field(*now, {"metadata", "uid"}), seconds, true}});
        }
        return end(*how);
      }
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop, kFollowAgain, [] { return false; });
    }
  } catch (const http::Stopped&) {
    over_ = true;
  } catch (const kube::ApiError& error) {
    // Once the job exists, an error concerns only this trial.
    const auto how = uid_.empty() ? TrialEnd::How::kNotStarted : TrialEnd::How::kFailed;
    leave_suspended();
    end({how, error.what()});
  } catch (const Taken& error) {
    end({TrialEnd::How::kNotStarted, error.what()});
  } catch (const Unstored& failure) {
    leave_suspended();
    over_ = true;
    owner_.fail(failure.why);
  } catch (...) {
    leave_suspended();
    over_ = true;
    owner_.fail(std::current_exception());
  }
}

// Suspends a job that cannot be followed, so that it holds no devices.
void ClusterTrial::leave_suspended() const noexcept {
  try {
    if (!uid_.empty()) calls_.client().patch(job_path(), kube::Patch::kMerge, suspension(uid_, true));
  } catch (const std::exception&) {
    return;
  }
}

void ClusterTrial::end(const TrialEnd& end) {
  over_ = true;
  owner_.deliver({number_, end});
}

void ClusterTrial::note_found(const json& job) {
  owner_.found(job);
  const std::scoped_lock lock(mutex_);
  uid_ = kube::text_field(job, {"metadata", "uid"});
}

void ClusterTrial::note_begun() {
  const std::scoped_lock lock(mutex_);
  begun_ = true;
  changed_.notify_all();
}

std::optional<json> ClusterTrial::find_job() const {
  try {
    return calls_.client().get(job_path());
  } catch (const kube::ApiError& error) {
    if (!error.missing_object()) throw;
    return std::nullopt;
  }
}

// An earlier search, or an attempt whose response was lost, may already have performed some of these steps.
void ClusterTrial::begin(const std::stop_token& stop) {
  calls_.persist(stop, [this] {
    std::optional<json> job = find_job();
    if (!job) job = create();
    if (!is_of_trial(*job, submission_.job))
      throw Taken(
          fmt::format("job '{}' in namespace '{}' does not belong to the study; delete it with `adaptdl delete "
                      "{}`, or use another study name",
                      submission_.name(), submission_.name_space(), submission_.name()));
    note_found(*job);
    kube::own_claim(calls_.client(), *job);
    resume(*job);
  });
}

json ClusterTrial::create() {
  kube::Client& client = calls_.client();
  // The claim is created first, because the job cannot start without it.
  try {
    client.create(kube::path(kube::kPersistentVolumeClaims, submission_.name_space()), submission_.claim);
  } catch (const kube::ApiError& error) {
    if (error.reason() != kExists) throw;
  }
  try {
    return client.create(kube::path(kube::kAdaptDLJobs, submission_.name_space()), submission_.job);
  } catch (const kube::ApiError& error) {
    if (error.reason() != kExists) throw;
    return client.get(job_path());
  }
}

void ClusterTrial::resume(const json& job) {
  if (kube::parse_job(job).suspend)
    calls_.client().patch(job_path(), kube::Patch::kMerge,
                          suspension(kube::text_field(job, {"metadata", "uid"}), false));
}

// Returns once the job has ended, has been deleted or is suspended; may also return earlier.
void ClusterTrial::follow(const std::stop_token& stop) {
  calls_.persist(stop, [&] { read_logs(true, stop); });
  if (stop.stop_requested()) throw http::Stopped();
}

// Reads what follow() may have missed, for example because a node was unreachable when the job ended. The logs of a job
// that has ended or is suspended no longer grow.
void ClusterTrial::read_rest(const std::stop_token& stop) {
  const auto until = std::chrono::steady_clock::now() + kReadLog;
  calls_.persist(stop, [&] {
    try {
      read_logs(false, stop);
    } catch (const http::Stopped&) {
      throw;
    } catch (const Error&) {
      if (std::chrono::steady_clock::now() < until) throw;
    }
  });
}

void ClusterTrial::read_logs(bool follow, const std::stop_token& stop) {
  std::exception_ptr failure;
  const auto take_line = [&](const kube::Replica& replica, kube::Time time, std::string_view line) {
    try {
      if (const auto result = output_.add(replica.uid, time, line)) owner_.deliver({number_, *result});
    } catch (...) {
      failure = std::current_exception();
    }
    return failure == nullptr;
  };
  const kube::JobLogsQuery query{.name_space = submission_.name_space(),
                                 .job = submission_.name(),
                                 .rank = 0,
                                 .since = {},
                                 .tail = {},
                                 .follow = follow,
                                 .until_suspended = true};
  output_.restart();
  try {
    kube::read_job_logs(calls_.client(), query, stop,
                        {.line = take_line, .flush = [] { return true; }, .notice = [](const std::string&) {}});
  } catch (const kube::NoLogs&) {
    // The job has ended, and its pods are gone.
  }
  if (failure) throw Unstored{failure};
}

std::optional<TrialEnd> ClusterTrial::how_ended(const std::optional<json>& object) const {
  using How = TrialEnd::How;
  if (!object || !is_of_trial(*object, submission_.job))
    return TrialEnd{How::kFailed, fmt::format("job '{}' was deleted", submission_.name())};
  const kube::Job job = kube::parse_job(*object);
  if (job.phase == "Succeeded") return TrialEnd{};
  if (job.phase == "Failed")
    return TrialEnd{How::kFailed, fmt::format("{}; see `adaptdl logs {}`",
                                              job.message.empty() ? "the job failed" : job.message, job.name)};
  if (job.suspend && job.phase == "Suspended") return TrialEnd{How::kStopped, job.message};
  return {};
}

bool ClusterTrial::is_replaced(const std::string& uid) const {
  const auto job = find_job();
  return !job || kube::text_field(*job, {"metadata", "uid"}) != uid;
}

void ClusterTrial::stop() {
  if (stopper_.joinable()) return;
  stopper_ = std::jthread([this](const std::stop_token& stop) { suspend(stop); });
}

void ClusterTrial::suspend(const std::stop_token& stop) {
  std::string uid;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [this] { return begun_; });
    if (!begun_) return;
    uid = uid_;
  }
  try {
    calls_.persist(stop, [&] {
      try {
        calls_.client().patch(job_path(), kube::Patch::kMerge, suspension(uid, true));
      } catch (const kube::ApiError& error) {
        // If the job is gone, the other thread detects it.
        if (!error.missing_object() && !(error.conflict() && is_replaced(uid))) throw;
      }
    });
  } catch (const http::Stopped&) {
    return;
  } catch (...) {
    owner_.fail(std::current_exception());
  }
}

}  // namespace adaptdl::sched::tune
