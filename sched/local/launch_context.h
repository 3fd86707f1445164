// LaunchContext holds what all starts of a run share.
#pragma once

#include <chrono>
#include <string>

#include "local/checkpoint_watch.h"
#include "local/device_source.h"
#include "local/device_time.h"
#include "local/launch_observer.h"
#include "local/launch_plan.h"
#include "local/launch_signals.h"
#include "local/local_supervisor.h"
#include "local/replica_host.h"
#include "local/restart_budget.h"
#include "local/run_control.h"
#include "local/run_share.h"
#include "local/run_size.h"

namespace adaptdl::sched {

struct LaunchContext {
  const LaunchPlan& plan;
  LaunchObserver& observer;
  LaunchSignals& signals;
  ReplicaHost& host;
  CheckpointWatch& checkpoints;
  RunSize& size;
  RestartBudget& budget;
  DeviceTime& device_time;
  LocalSupervisor* supervisor = nullptr;  // null: the run is on several machines
  RunControl* control = nullptr;          // null: the run has no control socket
  DeviceSource* share = nullptr;          // null: the run has the devices of its plan
  // How often the user asked for the end of the run: by SIGINT, SIGTERM, SIGHUP or a stop request.
  int user_requests = 0;
  // Whether replicas can join the program while it runs, as far as is known.
  bool can_join = true;
  // The earliest time of a restart that changes the number of replicas.
  std::chrono::steady_clock::time_point restart_after{};

  // When the status was last published.
  std::chrono::steady_clock::time_point published{};

  // Publishes that the run is now in this state, and why.
  void publish(const std::string& state, const std::string& why);
  // Sets what the run should have of the machine from now on.
  void set_share(const RunShare& wanted);
  // Publishes the status with the device-seconds so far.
  void publish();
  // Publishes the status if the published device-seconds are a few seconds old. Must be called at short intervals.
  void publish_device_time();
};

}  // namespace adaptdl::sched
