// Formats quantities for users to read.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace adaptdl::cli {

// Formats a byte count with a binary unit and about three significant digits: "0 B", "999 B", "1.50 KiB", "12.3 MiB".
std::string format_bytes(std::uint64_t bytes);

// Formats a span of time like a clock: "0:07", "12:34", "1:02:03", "3d 04:05:06". Negative spans are shown as 0.
std::string format_clock(std::chrono::milliseconds span);

// Formats a span of time in its two largest units: "0s", "45s", "2m 5s", "3h 20m", "5d 1h". Negative spans are shown as
// 0.
std::string format_duration(std::chrono::milliseconds span);

// Formats device-seconds as device-hours: "0.0042", "1.23", "1234.50".
std::string format_hours(double device_seconds);

// Formats a number with thousands separators: "1,234,567".
std::string format_count(std::int64_t count);

}  // namespace adaptdl::cli
