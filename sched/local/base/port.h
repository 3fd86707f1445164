// Finds a TCP port on which the replicas on one machine can connect to each other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

#include "base/fd.h"

namespace adaptdl::sched {

// Returns the first and the last ephemeral port, or 32768 and 60999 if the range is unknown.
std::pair<int, int> ephemeral_ports(const std::filesystem::path& file = "/proc/sys/net/ipv4/ip_local_port_range");

// A random port of at least 10000 that is outside the kernel's ephemeral range and that no process uses on any address.
// Between the choice and the program's own bind(), no outgoing connection can take such a port, and as long as this
// object exists, no other ReservedPort on this machine has the same port. The port is not bound, so that a program in
// any language can bind it, even one that does not set SO_REUSEADDR.
class ReservedPort {
 public:
  // If all ports of at least 10000 are in `ephemeral` or in use, the kernel chooses one. Throws Error if no port is
  // free.
  explicit ReservedPort(std::pair<int, int> ephemeral = ephemeral_ports());

  std::uint16_t number() const noexcept { return number_; }

 private:
  bool reserve(int port);

  std::uint16_t number_ = 0;
  Fd reservation_;
};

}  // namespace adaptdl::sched
