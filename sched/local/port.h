// Finds a TCP port on which the replicas of one machine can meet.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

namespace adaptdl::sched {

// Returns the first and last of the ports that the kernel assigns by itself, or 32768 and 60999 if they are unknown.
std::pair<int, int> ephemeral_ports(const std::filesystem::path& file = "/proc/sys/net/ipv4/ip_local_port_range");

// Returns a port that no process uses on any address, picked at random from 10000 on and outside of `ephemeral`: no
// outgoing connection can get it between this call and the program's own bind(). If there is none, the kernel chooses
// the port. It is not kept bound, so that a program in any language can bind it. Throws Error if no port is free.
std::uint16_t free_port(std::pair<int, int> ephemeral = ephemeral_ports());

}  // namespace adaptdl::sched
