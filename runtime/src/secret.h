// Secrets by which processes of one job recognize each other.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl {

// Returns a new secret: 32 hexadecimal digits from the system's random device.
std::string make_secret();

// The secret for connections that replicas agree on by `once`, which one of them has told the others: `once`, and the
// job's own (ADAPTDL_SUPERVISOR_TOKEN), if there is one, so that it is of no use to those who heard it on the network.
std::string secret_for(const std::string& once);

// Compares a given secret with the right one, in a time that does not depend on where they differ.
bool is_same_secret(std::string_view given, std::string_view secret);

}  // namespace adaptdl
