// A ReplicaHost starts a run's replicas on devices, and observes what they write and how they end.
//
// LocalHost runs replicas on this machine, and RemoteHost on other nodes.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "local/replica/replica.h"

namespace adaptdl::sched {

class ReplicaHost {
 public:
  virtual ~ReplicaHost() = default;

  // Returns the address at which other replicas reach a replica on this device. An empty name means no particular
  // device.
  virtual std::string address(const std::string& device) const = 0;
  // Returns a port that is free at the device's address. Throws Error if no port is free.
  virtual std::uint16_t free_port(const std::string& device) = 0;

  // Must be called before each start of all replicas, when no earlier replica is left.
  virtual void begin() = 0;
  // Starts a replica, which must not outlive the host. `on_report` is called with each JSON object that the replica
  // writes to its status descriptor. Throws UsageError if the program cannot be executed, and Error if a system call
  // fails.
  virtual std::unique_ptr<Replica> start(int number, const ReplicaPlace& place, Replica::OnReport on_report) = 0;

  // Adds to `polled` the descriptors that the caller must poll; those for output are added only if `with_output` is
  // true.
  virtual void add_to(std::vector<pollfd>& polled, bool with_output) const = 0;
  // Returns how long the caller may wait for these descriptors before the next tick().
  virtual std::chrono::milliseconds wait_limit() const = 0;
  // Reads the output that the replicas have written so far, up to a limit, and calls their OnReport functions.
  virtual void read() = 0;
  // Ends the processes that replicas have left behind. Must be called at short intervals.
  virtual void tick() = 0;
  // Returns false if the last checkpoint that the replicas saved since begin() could not be copied to the run's
  // directory.
  virtual bool has_last_checkpoint() const { return true; }
  // Sends SIGKILL to all replicas that are not gone, and to every process that they started.
  virtual void kill_all() = 0;
};

}  // namespace adaptdl::sched
