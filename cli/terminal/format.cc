#include "terminal/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace adaptdl::cli {

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // From 1023.5 on, the number would be rounded to "1024".
  while (value >= 1023.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

std::string format_clock(std::chrono::milliseconds span) {
  const std::int64_t seconds =
      std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(span).count());
  const std::int64_t days = seconds / 86400, hours = seconds / 3600 % 24, minutes = seconds / 60 % 60;
  if (days > 0) return fmt::format("{}d {:02}:{:02}:{:02}", days, hours, minutes, seconds % 60);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, seconds % 60);
  return fmt::format("{}:{:02}", minutes, seconds % 60);
}

std::string format_duration(std::chrono::milliseconds span) {
  const std::int64_t seconds =
      std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(span).count());
  const auto two = [](std::int64_t large, const char* large_unit, std::int64_t small, const char* small_unit) {
    return small == 0 ? fmt::format("{}{}", large, large_unit)
                      : fmt::format("{}{} {}{}", large, large_unit, small, small_unit);
  };
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return two(seconds / 60, "m", seconds % 60, "s");
  if (seconds < 86400) return two(seconds / 3600, "h", seconds / 60 % 60, "m");
  return two(seconds / 86400, "d", seconds / 3600 % 24, "h");
}

std::string format_hours(double device_seconds) {
  const double hours = device_seconds / 3600;
  return fmt::format("{:.{}f}", hours, hours < 0.1 ? 4 : 2);
}

std::string format_count(std::int64_t count) {
  std::string digits = fmt::format("{}", count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

}  // namespace adaptdl::cli
