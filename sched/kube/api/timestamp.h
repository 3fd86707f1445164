// Kubernetes times (metav1.Time and MicroTime, RFC 3339) and durations in the syntax of kubectl's flags ("1h30m",
// "90s").
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::kube {

using Time = std::chrono::system_clock::time_point;

// Parses "2021-03-18T12:00:00Z", with or without a fraction, with Z or an offset; returns null if the text is invalid.
std::optional<Time> parse_time(std::string_view text);
std::string to_string(Time time);  // with microseconds, in UTC

// Parses a duration in Go's syntax: "1h30m", "1.5h", "250ms", "-3s", "0"; returns null if the text is invalid.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

}  // namespace adaptdl::kube
