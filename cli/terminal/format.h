// Quantities as people read them. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace adaptdl::cli {

// Bytes with a binary unit and three significant digits at most: "0 B", "999 B", "1.50 KiB", "12.3 MiB".
std::string format_bytes(std::uint64_t bytes);

// A span of time as a clock shows it: "0:07", "12:34", "1:02:03", "3d 04:05:06". Negative spans count as 0.
std::string format_clock(std::chrono::milliseconds span);

// A span of time in its two largest units: "0s", "45s", "2m 5s", "3h 20m", "5d 1h". For ages: format_duration(age) + "
// ago".
std::string format_duration(std::chrono::milliseconds span);

// Device-seconds as device-hours: "0.0042", "1.23", "1234.50".
std::string format_hours(double device_seconds);

// A number with thousands told apart, "1,234,567".
std::string format_count(std::int64_t count);

}  // namespace adaptdl::cli
