#include "operator/cluster/leader_election.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "adaptdl/log.h"
#include "kube/api/error.h"
#include "kube/api/json_fields.h"
#include "kube/api/resource.h"

namespace adaptdl::sched {
namespace {

using kube::text_field;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr const char* kLastCycle = "adaptdl/last-cycle";
// A request that takes longer is abandoned, so that a renewal can be retried before the deadline.
constexpr milliseconds kRequest{1500}, kPauseAfterFailure{300};

std::string holder_of(const json& lease) { return text_field(lease, {"spec", "holderIdentity"}); }

json empty_lease(const LeaseSettings& settings) {
  return {{"apiVersion", "coordination.k8s.io/v1"},
          {"kind", "Lease"},
          {"metadata", {{"namespace", settings.name_space}, {"name", settings.name}}},
          {"spec", json::object()}};
}

}  // namespace

std::optional<json> LeaseRules::next(const json& lease, Clock::time_point now, kube::Time wall_time) {
  const std::string holder = holder_of(lease), version = text_field(lease, {"metadata", "resourceVersion"});
  if (version != seen_ && !lease.is_null()) {
    seen_ = version;
    seen_at_ = now;
    // The holder may have other settings.
    const int seconds = kube::int_field(lease, {"spec", "leaseDurationSeconds"}).value_or(0);
    duration_ = std::max<std::chrono::seconds>(settings_.duration, std::chrono::seconds(seconds));
  }
  // If the lease was deleted, its holder may not have noticed yet.
  const bool deleted = lease.is_null() && !seen_.empty() && !held_until_;
  const bool foreign = !holder.empty() && holder != settings_.identity;
  if ((foreign || deleted) && now < seen_at_ + duration_) return {};
  json mine = lease.is_null() ? empty_lease(settings_) : lease;
  json& spec = mine["spec"];
  if (!spec.is_object()) spec = json::object();
  const std::string time = kube::to_string(wall_time);
  if (holder != settings_.identity) {
    spec["acquireTime"] = time;
    const int transitions = kube::int_field(lease, {"spec", "leaseTransitions"}).value_or(0);
    spec["leaseTransitions"] = lease.is_null() ? 0 : transitions + 1;
  }
  spec["holderIdentity"] = settings_.identity;
  spec["leaseDurationSeconds"] = settings_.duration.count();
  spec["renewTime"] = time;
  return mine;
}

std::optional<json> LeaseRules::released(const json& lease) const {
  if (holder_of(lease) != settings_.identity) return {};
  json free = lease;
  free["spec"]["holderIdentity"] = "";
  free["spec"]["leaseDurationSeconds"] = 1;
  return free;
}

LeaderElection::LeaderElection(kube::Access access, LeaseSettings settings, std::function<void()> lost)
    : settings_(std::move(settings)),
      lost_(std::move(lost)),
      path_(kube::path(kube::kLeases, settings_.name_space, settings_.name)),
      client_(std::move(access), {.connect_timeout = kRequest, .timeout = kRequest, .patience = milliseconds(0)}),
      rules_(settings_),
      competing_([this](std::stop_token stop) { compete(stop); }),
      watching_([this](std::stop_token stop) { watch(stop); }) {}

LeaderElection::~LeaderElection() {
  for (std::jthread* thread : {&competing_, &watching_}) {
    thread->request_stop();
    thread->join();
  }
  if (rules_.held_until()) release();
}

bool LeaderElection::wait(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, stop, [this] { return rules_.held_until().has_value(); });
  return !stop.stop_requested();
}

void LeaderElection::set_last_cycle(kube::Time time) {
  const std::lock_guard lock(mutex_);
  last_cycle_ = time;
  new_cycle_ = true;
  changed_.notify_all();
}

std::optional<kube::Time> LeaderElection::last_cycle() {
  const std::lock_guard lock(mutex_);
  return last_cycle_;
}

void LeaderElection::compete(std::stop_token stop) {
  while (!stop.stop_requested()) {
    const milliseconds pause = attempt() ? settings_.retry : kPauseAfterFailure;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, pause, [this] { return std::exchange(new_cycle_, false); });
  }
}

// Tries to acquire or renew the lease. Returns false if a request failed, so that the next attempt should follow soon.
// A conflict with another operator's change is not a failure.
bool LeaderElection::attempt() {
  try {
    json lease;
    try {
      lease = client_.get(path_);
    } catch (const kube::ApiError& error) {
      if (!error.not_found()) throw;
    }
    std::optional<json> mine;
    {
      const std::lock_guard lock(mutex_);
      mine = rules_.next(lease, LeaseRules::Clock::now(), std::chrono::system_clock::now());
      if (!rules_.held_until()) last_cycle_ = kube::time_field(lease, {"metadata", "annotations", kLastCycle});
      if (mine && last_cycle_) (*mine)["metadata"]["annotations"][kLastCycle] = kube::to_string(*last_cycle_);
    }
    last_error_.clear();
    if (!mine) {
      const std::lock_guard lock(mutex_);
      if (rules_.held_until()) lose("was acquired by another operator");
      return true;
    }
    const auto asked = LeaseRules::Clock::now();
    if (lease.is_null()) {
      client_.create(kube::path(kube::kLeases, settings_.name_space), *mine);
    } else {
      client_.replace(path_, *mine);
    }
    const std::lock_guard lock(mutex_);
    rules_.written(asked);
    changed_.notify_all();
    return true;
  } catch (const Error& error) {
    const auto* refused = dynamic_cast<const kube::ApiError*>(&error);
    if (refused != nullptr && refused->conflict()) return true;  // another operator was faster
    if (std::exchange(last_error_, error.what()) != error.what())
      log::warn(fmt::format("cannot renew lease '{}/{}': {}", settings_.name_space, settings_.name, error.what()));
    return false;
  }
}

void LeaderElection::lose(const std::string& why) const {
  log::warn(fmt::format("lease '{}/{}' {}; exiting", settings_.name_space, settings_.name, why));
  lost_();
}

void LeaderElection::watch(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, stop, [this] { return rules_.held_until().has_value(); });
  while (!stop.stop_requested()) {
    const auto end = *rules_.held_until();
    if (LeaseRules::Clock::now() >= end)
      return lose(fmt::format("could not be renewed for {}s", settings_.deadline.count()));
    changed_.wait_until(lock, stop, end, [&] { return *rules_.held_until() != end; });
  }
}

void LeaderElection::release() {
  try {
    if (const auto free = rules_.released(client_.get(path_))) client_.replace(path_, *free);
  } catch (const Error& error) {
    log::warn(fmt::format("cannot release lease '{}/{}': {}", settings_.name_space, settings_.name, error.what()));
  }
}

}  // namespace adaptdl::sched
