// LocalHost runs replicas as processes on this machine.
//
// A guardian kills the processes that replicas leave behind, even if this process is killed.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "local/base/exit_order.h"
#include "local/base/port.h"
#include "local/replica/guardian.h"
#include "local/replica/out_of_memory.h"
#include "local/replica/replica_environment.h"
#include "local/replica/replica_host.h"

namespace adaptdl::sched {

class LocalReplica;

class LocalHost final : public ReplicaHost {
 public:
  // Starts the guardian, so the calling process must have only one thread. The plan and the observer must outlive the
  // host. Throws Error if the guardian cannot be started.
  LocalHost(const LaunchPlan& plan, LaunchObserver& observer) : plan_(plan), observer_(observer) {}
  LocalHost(const LocalHost&) = delete;
  LocalHost& operator=(const LocalHost&) = delete;

  std::string address(const std::string&) const override { return plan_.master_host; }
  std::uint16_t free_port(const std::string&) override;
  void begin() override;
  std::unique_ptr<Replica> start(int number, const ReplicaPlace& place, Replica::OnReport on_report) override;
  void add_to(std::vector<pollfd>& polled, bool with_output) const override;
  std::chrono::milliseconds wait_limit() const override;
  void read() override;
  void tick() override;
  void kill_all() override;

 private:
  friend class LocalReplica;
  void wind_down();

  const LaunchPlan& plan_;
  LaunchObserver& observer_;
  Guardian guardian_;
  std::deque<ReservedPort> ports_;
  const Environment caller_ = caller_environment();
  const unsigned cores_ = usable_cores();
  std::optional<OomWatch> oom_;
  std::optional<ExitOrder> exit_order_;
  std::vector<LocalReplica*> replicas_;  // all existing replicas, in the order of their start
};

}  // namespace adaptdl::sched
