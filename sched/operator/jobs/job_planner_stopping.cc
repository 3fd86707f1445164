#include "operator/jobs/job_planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/api/json_fields.h"
#include "operator/jobs/group_end.h"
#include "operator/jobs/members_plan.h"

namespace adaptdl::sched {
namespace {

using kube::field;
using std::chrono::seconds;

// A group that ran for at least this long ends a series of failed starts.
constexpr seconds kSettled{60};

}  // namespace

void JobPlanner::stop(const std::string& reason, const std::string& message, const Allocation& next, bool pause,
                      seconds wait) {
  const seconds stayed = std::chrono::duration_cast<seconds>(at_.now - status_.phase_since());
  const bool settled = job_.phase == "Running" && stayed >= kSettled;
  const int retries = !pause ? status_.retries() : settled ? 0 : status_.retries() + 1;
  if (pause && retries > 1) wait = std::max(wait, std::min(kFirstPause * (1 << std::min(retries - 2, 10)), kMaxPause));
  // During a pause, the allocator may allocate the job's nodes to other jobs.
  status_.stop(reason, message, wait.count() > 0 ? Allocation() : next, retries, wait);
  // The hint may be from an earlier group. This is harmless, because in that case, no replica requests a generation.
  const bool unchanged = field(at_.job, {"status", "membership"}).is_null();
  if (unchanged && job_.phase == "Running" && follows_generations(at_.hints))
    status_.set_membership(to_json(initial_membership(job_)));
  add_event(pause, reason, message);
  plan_.missing.clear();
  plan_.addresses.clear();
}

void JobPlanner::stopping() {
  if (membership_) {
    follow_last_members();
  } else {
    collect();
  }
  if (succeeded()) return;
  const PodFacts* const unconfirmed = on_lost_node();
  if (unconfirmed != nullptr) {
    // Nodes would be idle if they were allocated to the job before its pods have ended.
    status_.set_allocation({});
    status_.set_reason("NodeLost",
                       fmt::format("waiting for node '{}', which is not ready, to confirm that replica {} has ended",
                                   unconfirmed->node, unconfirmed->rank));
    look_again(at_.now + kNodeCheck);
  } else if (at_.decision) {
    status_.set_allocation(next_nodes());
    if (job_.suspend) note_suspension();
    if (status_.reason() == "Reallocated" || status_.reason() == kResumed)
      status_.set_reason("Reallocated", at_.decision->reason);
  }
  if (remove_live()) return;
  if (job_.suspend) return suspend();
  const auto hold = status_.retry_after();
  const Allocation nodes = next_nodes();
  if ((hold && *hold > at_.now) || nodes.empty()) {
    status_.set_allocation({});
    status_.set_phase("Pending", status_.reason(), status_.message());
    if (at_.decision && nodes.empty()) note_waiting(*at_.decision);
  } else {
    start(nodes);
  }
}

void JobPlanner::follow_last_members() {
  MembersPlan members = plan_last_members(at_, job_, settings_);
  take_changes(members);
  replicas_ = std::move(members.members);
  plan_.generation = std::move(members.generation);
  status_.set_membership(to_json(members.membership));
  const MembershipState& state = members.membership.state;
  if (state.broken_since || state.finished_at) look_again(at_.now + kMembersCheck);
}

const PodFacts* JobPlanner::on_lost_node() const {
  for (const PodFacts& pod : at_.pods) {
    if (live(pod) && !pod.node.empty() && !responds(at_, pod.node)) return &pod;
  }
  return nullptr;
}

}  // namespace adaptdl::sched
