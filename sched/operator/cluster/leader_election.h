// Elects one of several operators as the active one, the holder of a Lease, in the same way as Kubernetes' own
// components do.
//
//   holder    renews the lease every `retry`; without a renewal for `deadline`, it must stop immediately
//   others    take the lease if it has not been renewed for its duration, according to their own clocks
//
// The deadline is shorter than the duration, so there are never two holders, even if the clocks of the nodes differ.
// The API server accepts only one of several simultaneous changes to a lease (resourceVersion). A holder that finds
// another holder in the lease, because a user edited it, stops immediately.
//
// Threading: LeaseRules is not thread-safe; LeaderElection has threads of its own, and its methods may be called from
// any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "kube/api/client.h"
#include "kube/api/timestamp.h"

namespace adaptdl::sched {

struct LeaseSettings {
  std::string name_space, name;
  // Name of this operator. It must not change when the container is restarted, so that the operator regains its lease
  // immediately.
  std::string identity;
  std::chrono::seconds duration{10}, deadline{6}, retry{2};
};

// The rules of the election, without clocks or connections.
class LeaseRules {
 public:
  using Clock = std::chrono::steady_clock;

  explicit LeaseRules(LeaseSettings settings) : settings_(std::move(settings)) {}

  // Returns the lease to write in place of `lease`, which was read at `now` (null if there is none), or nothing while
  // another operator holds it.
  std::optional<nlohmann::json> next(const nlohmann::json& lease, Clock::time_point now, kube::Time wall_time);
  // Records that the lease that next() returned was written by a request that was sent at `asked`.
  void written(Clock::time_point asked) { held_until_ = asked + settings_.deadline; }
  // Returns the time until which this operator holds the lease, or nothing if it has never held the lease.
  std::optional<Clock::time_point> held_until() const { return held_until_; }
  // Returns the lease as it must be written to release it, or nothing if this operator is not the holder.
  std::optional<nlohmann::json> released(const nlohmann::json& lease) const;

 private:
  LeaseSettings settings_;
  std::string seen_;  // resourceVersion of the last lease that was read; empty if there never was one
  Clock::time_point seen_at_;
  std::chrono::seconds duration_{0};  // how long after seen_at_ the holder may rely on the lease
  std::optional<Clock::time_point> held_until_;
};

class LeaderElection {
 public:
  // Begins to compete for the lease. `access` refers to the cluster. `lost` is called on one of this object's threads
  // if the lease was held and could not be renewed in time or was acquired by another operator. It must end the
  // process's work immediately, and must not call methods of this object.
  LeaderElection(kube::Access access, LeaseSettings settings, std::function<void()> lost);
  // Releases the lease if it is held, so that another operator need not wait.
  ~LeaderElection();

  // Waits until this operator holds the lease. Returns false once a stop is requested.
  bool wait(std::stop_token stop);

  // Stores in the lease, for the next holder, the time at which the last scheduling cycle began.
  void set_last_cycle(kube::Time time);
  // Returns the time that the last holder stored or that set_last_cycle() has set.
  std::optional<kube::Time> last_cycle();

 private:
  void compete(std::stop_token stop);
  bool attempt();
  void lose(const std::string& why) const;
  void watch(std::stop_token stop);
  void release();

  const LeaseSettings settings_;
  const std::function<void()> lost_;
  const std::string path_;
  kube::Client client_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable_any changed_;
  LeaseRules rules_;
  std::optional<kube::Time> last_cycle_;
  bool new_cycle_ = false;             // whether last_cycle_ must be written to the lease immediately
  std::string last_error_;             // used by competing_ only
  std::jthread competing_, watching_;  // declared last, so that they end first
};

}  // namespace adaptdl::sched
