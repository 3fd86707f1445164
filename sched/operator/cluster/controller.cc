#include "operator/cluster/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "base/printable.h"
#include "http/http.h"
#include "kube/api/json_fields.h"
#include "kube/api/names.h"
#include "kube/jobs/job.h"
#include "operator/jobs/create_error.h"
#include "operator/jobs/members_plan.h"
#include "protocol/secret.h"

namespace adaptdl::sched {
namespace {

using kube::text_field;
using nlohmann::json;

// Maximum number of steps per sync(). No job needs more than three.
constexpr int kMaxSteps = 16;
constexpr std::chrono::milliseconds kFirstRetry{200}, kMaxRetry{30'000};

// Thrown if another client has created a pod with the name that a replica must have.
struct ForeignPod : Error {
  using Error::Error;
};

std::string name_space_of(const json& object) { return text_field(object, {"metadata", "namespace"}); }

}  // namespace

void Controller::sync(const std::string& key) {
  try {
    int steps = 0;
    while (advance(key)) {
      if (++steps < kMaxSteps) continue;
      log::warn(fmt::format("job {}: still changing after {} reconciliations; retrying in 1s", key, steps));
      queue_.add_at(key, WorkQueue::Clock::now() + std::chrono::seconds(1));
      break;
    }
    const std::lock_guard lock(mutex_);
    if (const auto found = memory_.find(key); found != memory_.end()) {
      found->second.failures = 0;
      found->second.create_error.clear();
    }
  } catch (const std::exception& error) {
    int failures = 0;
    {
      const std::lock_guard lock(mutex_);
      failures = ++memory_[key].failures;
    }
    // Conflicts are caused by other writers, and are resolved when the watch reports their changes.
    const auto* refused = dynamic_cast<const kube::ApiError*>(&error);
    const bool usual = refused != nullptr && (refused->conflict() || refused->not_found());
    if (!usual || failures > 5) log::warn(fmt::format("job {}: {}", key, error.what()));
    const auto pause = std::min(kFirstRetry * (1 << std::min(failures - 1, 10)), kMaxRetry);
    queue_.add_at(key, WorkQueue::Clock::now() + pause);
  }
}

void Controller::decide(const std::string& key, JobDecision decision, WorkQueue::Priority priority) {
  {
    const std::lock_guard lock(mutex_);
    Memory& memory = memory_[key];
    memory.decision = std::move(decision);
    ++memory.decisions;
  }
  queue_.add(key, priority);
}

std::optional<Allocation> Controller::undone(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(key);
  if (found == memory_.end() || !found->second.decision) return {};
  return found->second.decision->nodes;
}

json Controller::hints(const std::string& key, const std::string& uid) const {
  {
    const std::lock_guard lock(mutex_);
    const auto found = memory_.find(key);
    // The supervisor may still have the hints of an earlier job with the same name.
    if (found == memory_.end() || found->second.uid != uid) return json::object();
  }
  return supervisor_.hints(key);
}

// Performs one step. Returns whether another step may be possible immediately.
bool Controller::advance(const std::string& key) {
  const auto view = state_.job(key);
  if (!view) {
    forget(key);
    return false;
  }
  const std::string token = token_of(key, *view);
  const kube::Time now = std::chrono::system_clock::now();
  std::uint64_t decisions = 0;
  std::optional<JobDecision> decision;
  {
    const std::lock_guard lock(mutex_);
    Memory& memory = memory_[key];
    // The job may have been replaced by another job with the same name since the decision.
    if (memory.decision && memory.decision->uid != memory.uid) memory.decision.reset();
    decision = memory.decision;
    decisions = memory.decisions;
  }
  JobSituation situation{
      .job = view->job,
      .pods = view->pods,
      .decision = std::move(decision),
      .refusal = {},
      .hints = supervisor_.hints(key),
      .node_state = [this, now](const std::string& node) { return state_.node_state(node, now); },
      .now = now,
      .leads_since = leads_since_.load(),
      .reports = reports_.of(key, kube::int_field(view->job, {"status", "group"}).value_or(-1)),
      .usage_rate =
          [&](const Allocation& nodes) { return state_.usage_rate(view->job, nodes, pods_, lifecycle_.prices); }};
  Plan plan = plan_job(situation, lifecycle_);
  if (plan.starts && !pods_are_as_known(*view)) return true;
  const std::string name_space = name_space_of(view->job);
  if (hints_must_wait(key, view->job, plan.status)) plan.status = nullptr;
  if (!plan.status.is_null()) write_status(view->job, plan.status);
  supervise(key, *view, plan);
  if (situation.decision) {
    const std::lock_guard lock(mutex_);
    Memory& memory = memory_[key];
    if (memory.decisions == decisions) memory.decision.reset();
  }
  for (const JobEvent& event : plan.events) write_event(view->job, event);
  for (const PodRemoval& removal : plan.removals) remove_pod(name_space, removal);
  for (const PodRank& rank : plan.ranks) set_rank(name_space, rank);
  if (plan.look_again) {
    const auto wait = std::max(*plan.look_again - situation.now, kube::Time::duration(0));
    queue_.add_at(key, WorkQueue::Clock::now() + std::chrono::ceil<std::chrono::milliseconds>(wait));
  }
  // The missing pods depend on the status. If the status has just changed, the next step determines them again.
  if (!plan.status.is_null()) return true;
  return create_missing(key, situation, plan.missing, token);
}

// Creates the pods of the replicas with these numbers, until one of them is refused. Returns whether another step may
// be possible immediately.
bool Controller::create_missing(const std::string& key, JobSituation& situation, const std::vector<int>& missing,
                                const std::string& token) {
  for (const int number : missing) {
    try {
      situation.refusal = create_pod(situation.job, number, token);
    } catch (const kube::ApiError& error) {
      if (!error.conflict()) report_create_error(key, situation.job, "refused", error.server_message());
      throw;
    } catch (const ForeignPod& error) {
      report_create_error(key, situation.job, error.what(), error.what());
      throw;
    }
    // The first pod determines the other pods' token.
    if (!situation.refusal && number == 0) return true;
    if (!situation.refusal) continue;
    situation.decision.reset();
    const Plan refused = plan_job(situation, lifecycle_);
    if (!refused.status.is_null()) write_status(situation.job, refused.status);
    for (const JobEvent& event : refused.events) write_event(situation.job, event);
    return true;
  }
  return false;
}

// Returns whether the status contains only hints that must not be written yet. If so, queues the job for the time when
// they may be written.
bool Controller::hints_must_wait(const std::string& key, const json& job, const json& status) {
  const json& hints = kube::field(status, {"train"});
  // The first hints and changes to liveRescale are written immediately, because they change how the job is treated.
  if (!hints.is_object() || status.size() > 1 || hints.contains("liveRescale") ||
      !kube::field(job, {"status", "train"}).is_object())
    return false;
  const auto now = WorkQueue::Clock::now(), due = hint_pace_.due(key, now);
  if (due <= now) return false;
  queue_.add_at(key, due);
  return true;
}

// Lists the job's pods and returns whether all of them are in the cache. The watch may not yet have reported a pod
// whose creation was not acknowledged or that another operator created. Such a pod would run alongside the next group.
bool Controller::pods_are_as_known(const ClusterState::JobView& view) {
  const std::string uid = text_field(view.job, {"metadata", "uid"});
  const kube::ListOptions options{.label_selector = kube::replica_selector(kube::name_of(view.job))};
  bool known = true;
  for (const json& pod : client_.list(kube::path(kube::kPods, name_space_of(view.job)), options)) {
    const std::string pod_uid = text_field(pod, {"metadata", "uid"});
    if (text_field(owner_of(pod), {"uid"}) != uid ||
        std::ranges::find(view.pods, pod_uid, &PodFacts::uid) != view.pods.end())
      continue;
    state_.put_pod(pod);
    known = false;
  }
  return known;
}

// Writes an event with the reason why the job is not starting. Of consecutive errors with the same cause, only the
// first is reported. The causes are compared, because the messages may differ in details.
void Controller::report_create_error(const std::string& key, const json& job, const std::string& cause,
                                     const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(memory_[key].create_error, cause) == cause) return;
  }
  write_event(job, {true, "FailedCreate", one_line(message)});
}

void Controller::announce(const std::string& key) {
  if (const auto view = state_.job(key)) token_of(key, *view);
}

// Returns the token of the job's pods or, if it has no pods, the token that is created when the job becomes known.
// If the job is new or its token has changed, registers the job with the supervisor.
std::string Controller::token_of(const std::string& key, const ClusterState::JobView& view) {
  const std::string uid = text_field(view.job, {"metadata", "uid"});
  const int group = kube::int_field(view.job, {"status", "group"}).value_or(-1);
  std::string given;
  int rank = 0;
  for (const PodFacts& pod : view.pods) {
    if (pod.group != group || pod.token.empty() || (!given.empty() && pod.rank > rank)) continue;
    given = pod.token;
    rank = pod.rank;
  }
  const std::lock_guard lock(mutex_);
  Memory& memory = memory_[key];
  const bool known = memory.uid == uid;
  if (known && (given.empty() || given == memory.token)) return memory.token;
  if (!known) {  // the job is new, or replaces a job with the same name
    memory.uid = uid;
    memory.token = make_secret();
    supervisor_.remove_job(key);
    reports_.forget(key);
    hint_pace_.written(key);
  }
  if (!given.empty()) memory.token = given;
  supervisor_.add_job(key, memory.token);
  if (!known) supervisor_.set_hints(key, kube::field(view.job, {"status", "train"}));
  return memory.token;
}

void Controller::supervise(const std::string& key, const ClusterState::JobView& view, const Plan& plan) {
  if (plan.generation) {
    supervisor_.set_generation(key, *plan.generation);
  } else if (kube::field(view.job, {"status", "membership"}).is_null()) {
    supervisor_.clear_generation(key);
  }
  if (plan.addresses.empty()) return;
  supervisor_.set_addresses(key, kube::int_field(view.job, {"status", "group"}).value_or(0), plan.addresses);
}

void Controller::forget(const std::string& key) {
  supervisor_.remove_job(key);
  reports_.forget(key);
  hint_pace_.written(key);
  const std::lock_guard lock(mutex_);
  memory_.erase(key);
}

void Controller::write_status(const json& job, const json& status) {
  const std::string path = kube::path(kube::kAdaptDLJobs, name_space_of(job), kube::name_of(job), "status");
  const json change{{"metadata", {{"resourceVersion", text_field(job, {"metadata", "resourceVersion"})}}},
                    {"status", status}};
  const json changed = client_.patch(path, kube::Patch::kMerge, change);
  state_.put_job(changed);
  hint_pace_.written(name_space_of(job) + '/' + kube::name_of(job));
  metrics_.status_written(job, changed);
  if (const std::string phase = text_field(status, {"phase"}); !phase.empty())
    log::info(fmt::format("job {}/{}: {}: {}", name_space_of(job), kube::name_of(job), phase,
                          one_line(text_field(changed, {"status", "message"}))));
}

void Controller::remove_pod(const std::string& name_space, const PodRemoval& removal) {
  kube::RemoveOptions options{.propagation = kube::Propagation::kBackground, .grace = {}, .uid = removal.uid};
  if (removal.force) options.grace = std::chrono::seconds(0);
  try {
    client_.remove(kube::path(kube::kPods, name_space, removal.name), options);
  } catch (const kube::ApiError& error) {
    if (!error.not_found() && !error.conflict()) throw;
  }
}

// Writes a replica's current rank into its pod's annotations.
void Controller::set_rank(const std::string& name_space, const PodRank& rank) {
  const json change{{"metadata",
                     {{"uid", rank.uid},
                      {"annotations",
                       {{kReplicaAnnotation, std::to_string(rank.number)},
                        {kRankAnnotation, std::to_string(rank.rank)},
                        {kReplicasAnnotation, std::to_string(rank.replicas)}}}}}};
  try {
    state_.put_pod(client_.patch(kube::path(kube::kPods, name_space, rank.name), kube::Patch::kMerge, change));
  } catch (const kube::ApiError& error) {
    if (!error.not_found() && !error.conflict()) throw;
  }
}

// Creates the pod of the replica with this number. Returns why the pod is invalid or exceeds a quota; throws other
// errors.
std::optional<PodRefusal> Controller::create_pod(const json& job, int number, const std::string& token) {
  PodPlace place = place_of(job, number);
  place.token = token;
  place.hostname = state_.hostname(place.nodes.at(static_cast<std::size_t>(place.rank)));
  std::optional<int> joins;
  if (place.generation > 0) joins = number;
  std::string name;
  try {
    const json pod = make_replica_pod(job, place, pods_);
    name = kube::name_of(pod);
    state_.put_pod(client_.create(kube::path(kube::kPods, name_space_of(job)), pod));
    return {};
  } catch (const kube::ApiError& error) {
    if (error.reason() == "AlreadyExists") {
      // Usually, this operator or its terminating predecessor has created the pod, and the watch has not reported it
      // yet.
      const json pod = client_.get(kube::path(kube::kPods, name_space_of(job), name));
      state_.put_pod(pod);
      if (text_field(owner_of(pod), {"uid"}) != text_field(job, {"metadata", "uid"}))
        throw ForeignPod(fmt::format("pod '{}' already exists, but does not belong to the job; delete it", name));
      return {};
    }
    const CreateError kind = create_error(error);
    if (kind != CreateError::kQuota && kind != CreateError::kInvalid) throw;
    return PodRefusal{joins, kind == CreateError::kQuota, one_line(error.server_message())};
  } catch (const http::ConnectionError&) {
    throw;
  } catch (const http::Stopped&) {
    throw;
  } catch (const Error& error) {
    return PodRefusal{joins, false, one_line(error.what())};
  }
}

void Controller::write_event(const json& job, const JobEvent& event) {
  const std::string now = kube::to_string(std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()));
  const std::string when = now.substr(0, now.find('.')) + 'Z';
  const json object{{"apiVersion", "v1"},
                    {"kind", "Event"},
                    {"metadata", {{"generateName", kube::name_of(job) + '.'}, {"namespace", name_space_of(job)}}},
                    {"involvedObject",
                     {{"apiVersion", "adaptdl.petuum.com/v1"},
                      {"kind", kube::kAdaptDLJobs.kind},
                      {"namespace", name_space_of(job)},
                      {"name", kube::name_of(job)},
                      {"uid", text_field(job, {"metadata", "uid"})}}},
                    {"type", event.warning ? "Warning" : "Normal"},
                    {"reason", event.reason},
                    {"message", one_line(event.message, 1000)},
                    {"source", {{"component", "adaptdl-operator"}}},
                    {"count", 1},
                    {"firstTimestamp", when},
                    {"lastTimestamp", when}};
  try {
    client_.create(kube::path(kube::kEvents, name_space_of(job)), object);
  } catch (const kube::ApiError& error) {
    // Events are informational, and a terminating namespace rejects them.
    log::warn(fmt::format("job {}/{}: cannot create event: {}", name_space_of(job), kube::name_of(job), error.what()));
  }
}

}  // namespace adaptdl::sched
