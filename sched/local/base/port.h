// Finds a TCP port on which the replicas on one machine can connect to each other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

namespace adaptdl::sched {

// Returns the first and the last ephemeral port, or 32768 and 60999 if the range is unknown.
std::pair<int, int> ephemeral_ports(const std::filesystem::path& file = "/proc/sys/net/ipv4/ip_local_port_range");

// Returns a random port of at least 10000 that is outside `ephemeral` and that no process uses on any address. No
// outgoing connection can take such a port between this call and the program's own bind(). If there is no such port,
// the kernel chooses one. The port does not stay bound, so that a program in any language can bind it. Throws Error if
// no port is free.
std::uint16_t free_port(std::pair<int, int> ephemeral = ephemeral_ports());

}  // namespace adaptdl::sched
