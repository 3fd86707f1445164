// Kubernetes' times: metav1.Time and MicroTime (RFC 3339), and the durations of kubectl's flags ("1h30m", "90s").
//
// Plain functions of values.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::kube {

using Time = std::chrono::system_clock::time_point;

// "2021-03-18T12:00:00Z", with or without a fraction, with Z or an offset; null if it is none.
std::optional<Time> parse_time(std::string_view text);
std::string to_string(Time time);  // with microseconds, in UTC

// As Go writes durations: "1h30m", "1.5h", "250ms", "-3s", "0"; null if it is none.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

}  // namespace adaptdl::kube
