#include "operator/jobs/job_planner.h"

#include <algorithm>

#include "adaptdl/error.h"
#include "operator/jobs/group_end.h"
#include "operator/jobs/usage_account.h"

namespace adaptdl::sched {
namespace {

using kube::Time;

// Group numbers in a status must be below this limit, because no job is started this many times.
constexpr int kMaxGroups = 1'000'000;

}  // namespace

JobPlanner::JobPlanner(const JobSituation& situation, const LifecycleSettings& settings)
    : at_(situation), settings_(settings), job_(kube::parse_job(situation.job)), status_(situation.job, situation.now) {
  try {
    membership_ = parse_membership(situation.job);
  } catch (const Error&) {
    // watch_members() restarts the group.
  }
}

Plan JobPlanner::run() {
  // Kubernetes deletes the pods of a job that is being deleted. Because of finalizers, the job may exist longer than
  // its pods.
  if (job_.deleted) {
    account_usage(at_, job_, membership_.has_value(), status_);
    plan_.status = status_.patch();
    return std::move(plan_);
  }
  if (correct_group()) {
    plan_.status = status_.patch();
    return std::move(plan_);
  }
  status_.set_hints(at_.hints);
  account_usage(at_, job_, membership_.has_value(), status_);
  if (!job_.suspend) note_resumption();
  if (job_.phase == "Succeeded" || job_.phase == "Failed") {
    remove_live();
  } else if (job_.phase == "Starting" || job_.phase == "Running") {
    watch_group();
  } else if (job_.phase == "Stopping") {
    stopping();
  } else {
    pending();
  }
  plan_.status = status_.patch();
  return std::move(plan_);
}

bool JobPlanner::live(const PodFacts& pod) const { return pod.live() && !is_gone(at_, pod); }

void JobPlanner::remove(const PodFacts& pod) {
  // A terminating pod need not be deleted again, unless its node is gone and nothing else would remove the pod.
  if (pod.leaving && !is_gone(at_, pod)) return;
  if (std::ranges::find(plan_.removals, pod.uid, &PodRemoval::uid) != plan_.removals.end()) return;
  plan_.removals.push_back({pod.name, pod.uid, is_gone(at_, pod)});
}

int JobPlanner::last_group() const {
  const int stored = job_.group.value_or(-1);
  int last = stored < kMaxGroups ? std::max(stored, -1) : -1;
  for (const PodFacts& pod : at_.pods) last = std::max(last, pod.group);
  return last;
}

bool JobPlanner::correct_group() {
  const int group = last_group();
  if (job_.ended() || group < 0 || group == job_.group) return false;
  status_.set_group(group);
  return job_.phase == "Starting" || job_.phase == "Running" || job_.phase == "Stopping";
}

bool JobPlanner::remove_live() {
  bool any = false;
  for (const PodFacts& pod : at_.pods) {
    if (pod.live()) remove(pod);
    any = any || live(pod);
  }
  return any;
}

void JobPlanner::look_again(Time when) {
  plan_.look_again = plan_.look_again ? std::min(*plan_.look_again, when) : when;
}

void JobPlanner::add_event(bool warning, const std::string& reason, const std::string& message) {
  plan_.events.push_back({warning, reason, message});
}

Allocation JobPlanner::if_open(const Allocation& nodes, bool chosen) const {
  const auto open = [this, chosen](const std::string& node) {
    const NodeState state = at_.node_state(node);
    return state == NodeState::kReady || (chosen && state == NodeState::kCordoned);
  };
  return std::ranges::all_of(nodes, open) ? nodes : Allocation();
}

std::size_t JobPlanner::max_replicas() const {
  const int max = std::max(job_.max_replicas.value_or(kMaxReplicasPerJob), job_.min_replicas.value_or(0));
  return static_cast<std::size_t>(std::clamp(max, 1, kMaxReplicasPerJob));
}

Allocation JobPlanner::next_nodes() const {
  if (at_.decision) return if_open(at_.decision->nodes, true);
  if (job_.allocation.size() > max_replicas()) return {};
  return if_open(job_.allocation, status_.reason() == "Reallocated");
}

void JobPlanner::collect() {
  replicas_.assign(static_cast<std::size_t>(std::clamp(job_.replicas.value_or(0), 0, kMaxReplicasPerJob)), nullptr);
  for (const PodFacts& pod : at_.pods) {
    const int rank = pod.group == job_.group ? pod.number : -1;
    if (rank >= 0 && rank < static_cast<int>(replicas_.size())) {
      replicas_[static_cast<std::size_t>(rank)] = &pod;
    } else {
      others_.push_back(&pod);
      remove(pod);
    }
  }
}

void JobPlanner::take_changes(MembersPlan& members) {
  for (PodRemoval& removal : members.removals) plan_.removals.push_back(std::move(removal));
  for (JobEvent& event : members.events) plan_.events.push_back(std::move(event));
}

bool JobPlanner::succeeded() {
  const bool all = !replicas_.empty() && std::ranges::all_of(replicas_, [](const PodFacts* pod) {
    return pod != nullptr && pod->end == PodEnd::kSucceeded;
  });
  if (!all) return false;
  status_.finish("Succeeded", "Completed", "");
  add_event(false, "Succeeded", "all replicas exited with code 0");
  return true;
}

void JobPlanner::fail(const std::string& reason, const std::string& message) {
  status_.finish("Failed", reason, message);
  add_event(true, reason, message);
  plan_.missing.clear();
  plan_.addresses.clear();
}

}  // namespace adaptdl::sched
