#include "cluster_tuner/cluster_trial_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "adaptdl/error.h"
#include "base/private_files.h"
#include "base/text_parts.h"
#include "http/http.h"
#include "kube/api/json_fields.h"
#include "kube/api/resource.h"
#include "kube/api/watch.h"
#include "tune/pruner/pruner.h"

namespace adaptdl::sched::tune {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::chrono::seconds kReadUsageEvery{5};
// How long to wait before restarting a watch that has ended.
constexpr std::chrono::seconds kWatchAgain{5};

// Returns the uid of an object, or an empty string if the object does not exist.
std::string uid_at(kube::Client& client, const std::string& path) {
  try {
    return kube::text_field(client.get(path), {"metadata", "uid"});
  } catch (const kube::ApiError& error) {
    if (!error.missing_object()) throw;
    return "";
  }
}

}  // namespace

ClusterTrialRunner::ClusterTrialRunner(kube::Client& client, ClusterTrialPlan plan)
    : plan_(std::move(plan)), calls_(client, [this](const std::string& text) { put_notice(text); }) {
  client.list(kube::path(kube::kAdaptDLJobs, plan_.job.submission.name_space),
              {.label_selector = trial_selector(plan_.job.study_id), .field_selector = {}},
              [this](json&& job) { put_job(job); });
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch_jobs(stop); });
  remover_ = std::jthread([this](const std::stop_token& stop) { remove_jobs(stop); });
}

// Asks all threads to end before it waits for any of them.
ClusterTrialRunner::~ClusterTrialRunner() {
  watcher_.request_stop();
  remover_.request_stop();
  for (const auto& [number, trial] : trials_) trial->abandon();
  trials_.clear();
}

void ClusterTrialRunner::adopt(const Study& study) {
  std::map<int, kube::Job> jobs;
  {
    const std::scoped_lock lock(mutex_);
    jobs = jobs_;
  }
  for (const auto& [number, job] : jobs) {
    if (number >= static_cast<int>(study.trials.size()) || job.suspend) continue;
    const Trial& trial = study.trials[static_cast<std::size_t>(number)];
    const bool runs = is_running(trial);
    // If the trial is not running, an earlier search was killed after it had ended or paused the trial, but before it
    // had suspended the job.
    if (runs || is_paused(trial) || !job.ended()) {
      kube::Submission submission;
      submission.job = {{"metadata",
                         {{"name", job.name},
                          {"namespace", job.name_space},
                          {"labels", {{kStudyIdLabel, plan_.job.study_id}, {kTrialLabel, std::to_string(number)}}}}}};
      begin(number, std::move(submission));
      if (!runs) stop(number);
    }
  }
}

OutputRecord& ClusterTrialRunner::output_of(int number) {
  auto& output = outputs_[number];
  if (!output) {
    const fs::path directory = plan_.directory / "trials" / std::to_string(number);
    if (const auto error = create_private_directories(directory))
      throw Error(fmt::format("cannot create directory '{}': {}", directory.string(), error.message()));
    output = std::make_unique<OutputRecord>(directory / "output.jsonl", plan_.metric);
  }
  return *output;
}

void ClusterTrialRunner::start(int number, const Values& values) {
  begin(number, make_trial_job(plan_.job, number, values));
}

void ClusterTrialRunner::begin(int number, kube::Submission submission) {
  ClusterTrial::Owner owner;
  owner.found = [this](const json& job) { put_job(job); };
  owner.deliver = [this](TrialEvent event) {
    const std::scoped_lock lock(mutex_);
    events_.push_back(std::move(event));
  };
  owner.fail = [this](const std::exception_ptr& error) {
    const std::scoped_lock lock(mutex_);
    failure_ = error;
  };
  OutputRecord& output = output_of(number);
  trials_[number] = std::make_unique<ClusterTrial>(number, std::move(submission), calls_, output, std::move(owner));
}

void ClusterTrialRunner::stop(int number) {
  if (const auto trial = trials_.find(number); trial != trials_.end()) trial->second->stop();
}

std::vector<TrialEvent> ClusterTrialRunner::poll() {
  give_notices();
  std::vector<TrialEvent> events, taken;
  if (const auto now = Clock::now(); now - usage_read_ >= kReadUsageEvery) {
    usage_read_ = now;
    for (const auto& [number, trial] : trials_)
      if (const auto usage = usage_of(number)) events.push_back({number, *usage});
  }
  {
    const std::scoped_lock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    taken.swap(events_);
  }
  for (TrialEvent& event : taken) {
    // kill() and the thread of an abandoned trial may both have delivered the trial's end.
    if (!trials_.contains(event.number)) continue;
    if (std::holds_alternative<TrialEnd>(event.what)) trials_.erase(event.number);
    events.push_back(std::move(event));
  }
  return events;
}

void ClusterTrialRunner::discard(int number) {
  const std::scoped_lock lock(mutex_);
  if (!claims_.contains(number)) return;
  removals_.push_back(number);
  wake_.notify_all();
}

bool ClusterTrialRunner::settle() {
  give_notices();
  const std::scoped_lock lock(mutex_);
  return removals_.empty();
}

void ClusterTrialRunner::stop_all() {
  for (const auto& [number, trial] : trials_) trial->stop();
}

bool ClusterTrialRunner::any_left() {
  give_notices();
  return std::ranges::any_of(trials_, [](const auto& each) { return !each.second->is_over(); });
}

void ClusterTrialRunner::kill() {
  for (const auto& [number, trial] : trials_) {
    trial->abandon();
    const std::scoped_lock lock(mutex_);
    events_.push_back({number, TrialEnd{TrialEnd::How::kStopped, ""}});
  }
}

std::optional<RunStatus> ClusterTrialRunner::status(int number) const {
  const std::scoped_lock lock(mutex_);
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return {};
  const kube::Job& job = found->second;
  RunStatus status;
  status.name = job.name;
  status.state = job.phase.empty() ? "waiting" : lower(job.phase);
  if (job.phase == "Succeeded" || job.phase == "Suspended") status.state = "stopped";
  status.why = job.message;
  status.replicas = job.ready.value_or(0);
  status.wanted = static_cast<int>(job.allocation.size());
  for (const char* const name : {"progress", "targetProgress"})
    if (const json& value = kube::field(job.train, {name}); value.is_number()) status.progress[name] = value;
  return status;
}

// This machine's clock and the cluster's may differ. The time for which a job has held its devices is therefore
// measured with this machine's clock, up to the last moment at which the job was known to hold them.
std::optional<RunUsage> ClusterTrialRunner::usage_of(int number) {
  const std::scoped_lock lock(mutex_);
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return {};
  const kube::JobUsage& usage = found->second.usage;
  double seconds = usage.gpu_seconds;
  if (const auto held = holding_.find(number); usage.since && held != holding_.end())
    seconds +=
        usage.gpus * std::chrono::duration<double>(interrupted_.value_or(Clock::now()) - held->second.seen).count();
  return RunUsage{found->second.uid, seconds, false};
}

void ClusterTrialRunner::put_job(const json& object) {
  const auto number = trial_of(object);
  if (!number) return;
  kube::Job job = kube::parse_job(object);
  const std::scoped_lock lock(mutex_);
  const auto [held, is_first] = holding_.try_emplace(*number);
  if (held->second.since != job.usage.since) {
    held->second = {job.usage.since, Clock::now()};
    // The job has held its devices since before this search began.
    if (is_first && job.usage.since)
      held->second.seen -= std::max(kube::Time::duration{}, std::chrono::system_clock::now() - *job.usage.since);
  }
  claims_[*number] = kube::claim_of(object);
  jobs_[*number] = std::move(job);
}

void ClusterTrialRunner::note_watch(bool answered) {
  const std::scoped_lock lock(mutex_);
  if (answered)
    interrupted_.reset();
  else if (!interrupted_)
    interrupted_ = Clock::now();
}

void ClusterTrialRunner::watch_jobs(const std::stop_token& stop) {
  const auto handle = [this](kube::Change&& change) {
    using Kind = kube::Change::Kind;
    if (change.kind == Kind::kInterrupted) calls_.unreachable(change.message);
    if (change.kind == Kind::kSynced) calls_.answered();
    note_watch(change.kind != Kind::kInterrupted);
    if (change.kind == Kind::kAdded || change.kind == Kind::kModified) put_job(change.object);
    if (change.kind != Kind::kDeleted) return true;
    const std::string name = kube::name_of(change.object);
    const std::scoped_lock lock(mutex_);
    std::erase_if(jobs_, [&](const auto& each) { return each.second.name == name; });
    return true;
  };
  while (!stop.stop_requested()) {
    try {
      kube::watch(calls_.client(), kube::path(kube::kAdaptDLJobs, plan_.job.submission.name_space),
                  {.label_selector = trial_selector(plan_.job.study_id), .field_selector = {}}, stop, handle);
    } catch (const std::exception&) {
      // Only the status table and the device-hours need the watch: trials make their own calls.
      note_watch(false);
    }
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    changed.wait_for(lock, stop, kWatchAgain, [] { return false; });
  }
}

void ClusterTrialRunner::remove_jobs(const std::stop_token& stop) {
  for (;;) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, stop, [this] { return !removals_.empty(); });
    if (stop.stop_requested()) return;
    const int number = removals_.front();
    lock.unlock();
    try {
      remove_job(number, stop);
    } catch (const http::Stopped&) {
      return;
    } catch (const std::exception& error) {
      put_notice(fmt::format("trial {}: cannot delete its job: {}", number, error.what()));
    }
    lock.lock();
    removals_.pop_front();
  }
}

void ClusterTrialRunner::remove_job(int number, const std::stop_token& stop) {
  kube::Client& client = calls_.client();
  const std::string& name_space = plan_.job.submission.name_space;
  const std::string job = kube::path(kube::kAdaptDLJobs, name_space, trial_job_name(plan_.job.study, number));
  std::string claim, uid;
  {
    const std::scoped_lock lock(mutex_);
    claim = claims_[number];
    if (const auto known = jobs_.find(number); known != jobs_.end()) uid = known->second.uid;
  }
  const auto remove = [&](const std::string& path, const kube::RemoveOptions& options) {
    calls_.persist(stop, [&] {
      try {
        client.remove(path, options);
      } catch (const kube::ApiError& error) {
        const bool is_replaced = error.conflict() && !options.uid.empty() && uid_at(client, path) != options.uid;
        if (!error.missing_object() && !is_replaced) throw;
      }
    });
  };
  if (!uid.empty()) remove(job, {.propagation = kube::Propagation::kBackground, .grace = {}, .uid = uid});
  if (!claim.empty()) remove(kube::path(kube::kPersistentVolumeClaims, name_space, claim), {});
  const std::scoped_lock lock(mutex_);
  claims_.erase(number);
  holding_.erase(number);
}

void ClusterTrialRunner::put_notice(const std::string& text) {
  const std::scoped_lock lock(mutex_);
  notices_.push_back(text);
}

void ClusterTrialRunner::give_notices() {
  std::deque<std::string> notices;
  {
    const std::scoped_lock lock(mutex_);
    notices.swap(notices_);
  }
  for (const std::string& text : notices) plan_.notice(text);
}

}  // namespace adaptdl::sched::tune
