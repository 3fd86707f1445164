// A DeviceSource allocates devices to a run, and gets back those that the run releases.
//
// The devices that it allocates go into the run's size, which the replicas follow. A device is reported as used before
// a process is started on it and until the last process on it is gone, so that it never has two users.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace adaptdl::sched {

class DeviceSource {
 public:
  virtual ~DeviceSource() = default;

  // Readable when take() has something to do.
  virtual int fd() const noexcept = 0;
  // Sets the size to the newest allocation. Returns whether there was one. Must also be called at short intervals.
  virtual bool take() = 0;

  // Returns whether the run was allocated any devices yet.
  virtual bool has_devices() const noexcept = 0;
  // Returns whether the run must wait for devices that others use.
  virtual bool told_to_wait() const noexcept = 0;
  // The reason for the last allocation, in one clause; empty before the first one.
  virtual const std::string& reason() const noexcept = 0;

  // The following functions also send the bounds of the size, and how many replicas the run prefers. set_hints() sends
  // what the program reports about itself, for the policy.
  virtual void set_hints(nlohmann::json hints) = 0;
  // Sets how much its speedup counts relative to that of other runs.
  virtual void set_weight(double weight) = 0;
  // Reports that only these devices are in use, or about to be. If `stays`, the run cannot give up any of them.
  virtual void set_used(std::vector<std::string> devices, bool stays) = 0;
};

}  // namespace adaptdl::sched
