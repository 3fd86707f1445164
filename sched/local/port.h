// A TCP port for the replicas of one machine to meet on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

namespace adaptdl::sched {

// The ports that the kernel hands out by itself, first and last; 32768 to 60999 if that cannot be read.
std::pair<int, int> ephemeral_ports(const std::filesystem::path& file = "/proc/sys/net/ipv4/ip_local_port_range");

// A port that nobody uses on any address, picked at random among the unprivileged ones outside of `ephemeral`: between
// this call and the program's own bind, no outgoing connection can be given it. If there are none outside, one of the
// kernel's choice. It is not kept bound, so that a program in any language can bind it. Throws Error if no port is
// free.
std::uint16_t free_port(std::pair<int, int> ephemeral = ephemeral_ports());

}  // namespace adaptdl::sched
