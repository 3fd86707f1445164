// LaunchContext holds the state that all starts of a run share.
#pragma once

#include <chrono>
#include <string>

#include "local/base/checkpoint_watch.h"
#include "local/base/launch_observer.h"
#include "local/base/launch_plan.h"
#include "local/devices/device_source.h"
#include "local/devices/device_time.h"
#include "local/devices/run_share.h"
#include "local/devices/run_size.h"
#include "local/launch/launch_signals.h"
#include "local/launch/local_supervisor.h"
#include "local/launch/restart_budget.h"
#include "local/record/run_control.h"
#include "local/replica/replica_host.h"

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
  LocalSupervisor* supervisor = nullptr;  // null: the run spans several machines
  RunControl* control = nullptr;          // null: the run has no control socket
  DeviceSource* share = nullptr;          // null: the run uses the devices of its plan
  // How many times the user requested the end of the run, by SIGINT, SIGTERM, SIGHUP or a stop request.
  int user_requests = 0;
  // Whether replicas can join the program while it is running. Assumed to be true until the program shows otherwise.
  bool can_join = true;
  // The earliest time at which a restart may change the number of replicas.
  std::chrono::steady_clock::time_point restart_after{};

  // When the status was last published.
  std::chrono::steady_clock::time_point published{};

  // Publishes the run's new state and the reason for it.
  void publish(const std::string& state, const std::string& why);
  // Applies a new share of the devices to the run.
  void set_share(const RunShare& wanted);
  // Publishes the status with the current device-seconds.
  void publish();
  // Publishes the status if the published device-seconds are a few seconds old. Must be called at short intervals.
  void publish_device_time();
};

}  // namespace adaptdl::sched
