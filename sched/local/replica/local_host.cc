#include "local/replica/local_host.h"

#include <algorithm>
#include <set>
#include <utility>

#include "local/base/port.h"
#include "local/base/process_tree.h"
#include "local/replica/local_replica.h"

namespace adaptdl::sched {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kWindDownTick = std::chrono::milliseconds(10);

}  // namespace

std::uint16_t LocalHost::free_port(const std::string&) {
  // A launcher that gets ports from this node asks for the next port before the replicas use the previous one.
  constexpr std::size_t kReservedPorts = 2;
  if (ports_.size() == kReservedPorts) ports_.pop_front();
  return ports_.emplace_back().number();
}

void LocalHost::begin() {
  oom_.emplace();
  exit_order_.emplace();
}

std::unique_ptr<Replica> LocalHost::start(int number, const ReplicaPlace& place, Replica::OnReport on_report) {
  auto environment = to_strings(replica_environment(plan_, caller_, place, cores_));
  return std::make_unique<LocalReplica>(*this, number, place, std::move(environment), std::move(on_report));
}

void LocalHost::add_to(std::vector<pollfd>& polled, bool with_output) const {
  for (const LocalReplica* replica : replicas_) replica->add_to(polled, with_output);
}

std::chrono::milliseconds LocalHost::wait_limit() const {
  return std::ranges::any_of(replicas_, &LocalReplica::winding_down) ? kWindDownTick : kTick;
}

void LocalHost::read() {
  for (LocalReplica* replica : replicas_) {
    if (!replica->gone()) replica->read();
  }
}

void LocalHost::tick() {
  wind_down();
  if (oom_) oom_->tick();
}

// A single scan of all processes serves all replicas: there may be thousands of processes, and many replicas.
void LocalHost::wind_down() {
  std::set<pid_t> lingering, sweeping, alive;
  for (const LocalReplica* replica : replicas_) {
    if (replica->lingering()) lingering.insert(replica->pid());
    if (replica->sweeping()) sweeping.insert(replica->pid());
  }
  if (!lingering.empty()) {
    for (const Member& member : session_members(lingering)) alive.insert(member.session);
  }
  if (!sweeping.empty()) {
    for (const Member& member : kill_sessions(sweeping)) alive.insert(member.session);
  }
  for (LocalReplica* replica : replicas_) {
    if (replica->winding_down()) replica->wind_down(alive.contains(replica->pid()));
  }
}

void LocalHost::kill_all() {
  std::set<pid_t> sessions;
  for (LocalReplica* replica : replicas_) {
    if (replica->gone()) continue;
    replica->set_killed();
    sessions.insert(replica->pid());
  }
  kill_sessions(sessions);
}

}  // namespace adaptdl::sched
