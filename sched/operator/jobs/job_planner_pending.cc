#include "operator/jobs/job_planner.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

#include "base/counted.h"

namespace adaptdl::sched {
namespace {

using kube::Time;

}  // namespace

void JobPlanner::pending() {
  if (job_.phase.empty()) status_.set_phase("Pending", "New", "waiting for nodes");
  if (remove_live()) return;
  if (job_.suspend) return suspend();
  if (const auto hold = status_.retry_after(); hold && *hold > at_.now) {
    status_.set_allocation({});
    look_again(*hold);
    return;
  }
  status_.end_pause();  // changes the status, which wakes the allocator
  if (const Allocation nodes = next_nodes(); !nodes.empty()) {
    start(nodes);
  } else {
    status_.set_allocation({});
    if (!at_.decision) return;
    note_waiting(*at_.decision);
    check_placeable();
  }
}

void JobPlanner::suspend() {
  note_suspension();
  status_.set_allocation({});
  status_.set_unplaceable(false);
  if (job_.phase != kSuspended) status_.set_phase(kSuspended, kSuspended, kWhySuspended);
}

void JobPlanner::note_suspension() {
  if (status_.reason() == kSuspended) return;
  status_.set_reason(kSuspended, kWhySuspended);
  add_event(false, kSuspended, kWhySuspended);
}

void JobPlanner::note_resumption() {
  const bool stops = job_.phase == "Stopping" && status_.reason() == kSuspended;
  if (!stops && job_.phase != kSuspended) return;
  if (!stops) status_.set_phase("Pending", kResumed, kWhyResumed);
  status_.set_reason(kResumed, kWhyResumed);
  add_event(false, kResumed, kWhyResumed);
}

void JobPlanner::note_waiting(const JobDecision& decision) {
  status_.set_reason(decision.placeable ? "Waiting" : "Unschedulable", decision.reason);
  status_.set_unplaceable(!decision.placeable);
}

void JobPlanner::check_placeable() {
  const auto since = status_.unplaceable_since();
  if (!since || settings_.unschedulable_timeout.count() == 0) return;
  const Time end = *since + settings_.unschedulable_timeout;
  if (end > at_.now) {
    look_again(end);
    return;
  }
  constexpr std::string_view kWaits = "waits: ";
  std::string why = status_.message();
  if (why.starts_with(kWaits)) why.erase(0, kWaits.size());
  fail("Unschedulable", why);
}

void JobPlanner::start(const Allocation& nodes) {
  const int group = last_group() + 1;
  const std::set<std::string> names(nodes.begin(), nodes.end());
  const std::string size = counted(nodes.size(), "replica") + " on " + counted(names.size(), "node");
  const std::string why = at_.decision                        ? at_.decision->reason
                          : status_.reason() == "Reallocated" ? status_.message()
                                                              : size + ": restarted";
  status_.set_unplaceable(false);
  status_.start(group, nodes, why);
  plan_.starts = true;
  add_event(false, "Starting", fmt::format("{}, group {}", size, group));
}

}  // namespace adaptdl::sched
