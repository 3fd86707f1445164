// A DeviceSource allocates devices to a run, and takes back the devices that the run releases.
//
// The allocated devices are passed to the run's size, which the replicas follow. A device is reported as in use from
// before a process is started on it until the last process on it has ended, so that a device never has two users.
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

  // Returns a descriptor that is readable when take() has work to do.
  virtual int fd() const noexcept = 0;
  // Applies the newest allocation to the run's size. Returns whether there was a new one. Must also be called at short
  // intervals when fd() is not readable.
  virtual bool take() = 0;

  // Returns whether any devices have been allocated to the run and have not been lost since.
  virtual bool has_devices() const noexcept = 0;
  // Returns whether the run must wait for devices that other runs are using.
  virtual bool must_wait() const noexcept = 0;
  // Returns the reason for the last allocation as a clause; empty before the first allocation.
  virtual const std::string& reason() const noexcept = 0;

  // Sends the hints that the program reports about itself, which the policy uses. This function and the next two also
  // send the bounds of the run's size and the number of replicas that the run prefers.
  virtual void set_hints(nlohmann::json hints) = 0;
  // Sets the weight of the run's speedup relative to other runs.
  virtual void set_weight(double weight) = 0;
  // Reports all devices that are in use or about to be used. If `stays` is true, the run cannot give up any of them.
  virtual void set_used(std::vector<std::string> devices, bool stays) = 0;
};

}  // namespace adaptdl::sched
