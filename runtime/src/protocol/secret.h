// The secrets with which a job's processes authenticate each other.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl {

// Returns a new secret: 32 hexadecimal digits from the system's random device.
std::string make_secret();

// Returns the secret for connections between replicas, after one of them has sent `once` to the others. The secret
// combines `once` with the job's secret (ADAPTDL_SUPERVISOR_TOKEN), if there is one, so that a process that intercepts
// `once` on the network still cannot connect.
std::string secret_for(const std::string& once);

// Compares a given secret with the expected one. The duration of the comparison does not depend on where the two
// differ.
bool is_same_secret(std::string_view given, std::string_view secret);

}  // namespace adaptdl
