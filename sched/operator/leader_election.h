// Which of several operators acts: the holder of a Lease, by the rules of Kubernetes' own components.
//
//   holder    renews the lease every `retry`; without a renewal for `deadline`, it must stop at once
//   others    take the lease once it was not renewed for its duration, by their own clocks
//
// The deadline is shorter than the duration, so there are never two holders, whatever the clocks of the nodes show. The
// API server accepts only one of several simultaneous changes of a lease (resourceVersion). A holder that finds another
// one in the lease, because somebody edited it, stops at once.
//
// Threading: LeaseRules is not thread-safe; LeaderElection has a thread of its own, and its methods may be called from
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

#include "kube/client.h"
#include "kube/timestamp.h"

namespace adaptdl::sched {

struct LeaseSettings {
  std::string name_space, name;
  // Name of this operator. It must not change when the container is restarted, so that the operator gets its lease back
  // immediately.
  std::string identity;
  std::chrono::seconds duration{10}, deadline{6}, retry{2};
};

// The rules, without clocks and connections.
class LeaseRules {
 public:
  using Clock = std::chrono::steady_clock;

  explicit LeaseRules(LeaseSettings settings) : settings_(std::move(settings)) {}

  // Returns the lease to write in place of the one that was read at `now` (null: there is none), or nothing while
  // another operator holds it.
  std::optional<nlohmann::json> next(const nlohmann::json& lease, Clock::time_point now, kube::Time wall_time);
  // The lease that next() returned has been written. `asked`: when the request was sent.
  void written(Clock::time_point asked) { held_until_ = asked + settings_.deadline; }
  // Returns until when this operator holds the lease, or nothing if it never did.
  std::optional<Clock::time_point> held_until() const { return held_until_; }
  // Returns the lease of this operator, released, or nothing if it is not the holder.
  std::optional<nlohmann::json> released(const nlohmann::json& lease) const;

 private:
  LeaseSettings settings_;
  std::string seen_;  // resourceVersion of the last lease that was read; empty: there never was one
  Clock::time_point seen_at_;
  std::chrono::seconds duration_{0};  // after seen_at_, for which others may rely on that lease
  std::optional<Clock::time_point> held_until_;
};

class LeaderElection {
 public:
  // Begins to compete for the lease. `access` is that of the cluster. `lost` is called on a thread of this object once
  // the lease was held and could not be renewed in time; it must end the process's work at once.
  LeaderElection(kube::Access access, LeaseSettings settings, std::function<void()> lost);
  // Releases the lease if it is held, so that another operator need not wait.
  ~LeaderElection();

  // Waits until this operator holds the lease. Returns false once a stop is requested.
  bool wait(std::stop_token stop);

  // Writes to the lease, for the next holder, when the last scheduling cycle began.
  void set_last_cycle(kube::Time time);
  // Returns the time that the last holder wrote, or that this one has set.
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
  bool new_cycle_ = false;             // whether last_cycle_ must be written to the lease at once
  std::string last_error_;             // used by competing_ only
  std::jthread competing_, watching_;  // the last, so that they end first
};

}  // namespace adaptdl::sched
