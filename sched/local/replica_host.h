// A ReplicaHost starts the replicas of a run on its devices, and notices what they write and how they end.
//
// LocalHost does this on this machine.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "local/replica.h"

namespace adaptdl::sched {

class ReplicaHost {
 public:
  virtual ~ReplicaHost() = default;

  // Returns the address at which other replicas reach one on this device ("": none in particular).
  virtual std::string address(const std::string& device) const = 0;
  // Returns a port that is free on that address. Throws Error if there is none.
  virtual std::uint16_t free_port(const std::string& device) = 0;

  // Must be called before each start of all replicas, when none is left.
  virtual void begin() = 0;
  // Starts a replica, which must not outlive the host. `on_report` is called with each JSON object that it writes to
  // its status descriptor. Throws UsageError if the program cannot be executed, and Error if the system refuses.
  virtual std::unique_ptr<Replica> start(int number, const ReplicaPlace& place, Replica::OnReport on_report) = 0;

  // Adds the descriptors to poll, including those for output if `with_output`.
  virtual void add_to(std::vector<pollfd>& polled, bool with_output) const = 0;
  // Returns how long the caller may wait for these descriptors before the next tick().
  virtual std::chrono::milliseconds wait_limit() const = 0;
  // Reads what the replicas have written by now, up to a limit, and calls their OnReport.
  virtual void read() = 0;
  // Ends what replicas have left behind. Must be called at short intervals.
  virtual void tick() = 0;
  // Sends SIGKILL to all replicas that are not gone, and to everything that they started.
  virtual void kill_all() = 0;
};

}  // namespace adaptdl::sched
