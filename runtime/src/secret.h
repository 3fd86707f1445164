// Secrets by which processes of one job recognize each other.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl {

// Returns a new secret: 32 hexadecimal digits from the system's random device.
std::string make_secret();

// Compares a given secret with the right one, in a time that does not depend on where they differ.
bool is_same_secret(std::string_view given, std::string_view secret);

}  // namespace adaptdl
