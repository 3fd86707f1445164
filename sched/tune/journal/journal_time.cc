#include "tune/journal/journal_time.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <ctime>

namespace adaptdl::sched::tune {
namespace {

// Reads fixed-width parts; `good` becomes false at the first part that is missing.
struct TimeParts {
  std::string_view text;
  bool good = true;

  bool take(char c) {
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
  }
  void expect(char c) { good = take(c) && good; }
  int number(std::size_t digits) {
    int number = 0;
    good = good && text.size() >= digits;
    for (std::size_t i = 0; good && i < digits; ++i) {
      good = text[i] >= '0' && text[i] <= '9';
      number = number * 10 + (text[i] - '0');
    }
    if (good) text.remove_prefix(digits);
    return number;
  }
};

Time local_time(std::chrono::year_month_day date, int hour, int minute, int second) {
  std::tm parts{};
  parts.tm_year = static_cast<int>(date.year()) - 1900;
  parts.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  parts.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  parts.tm_hour = hour;
  parts.tm_min = minute;
  parts.tm_sec = second;
  parts.tm_isdst = -1;
  return std::chrono::system_clock::from_time_t(::mktime(&parts));
}

// Reads an offset such as "+02:00", or "Z".
std::optional<std::chrono::seconds> read_offset(TimeParts& parts) {
  if (parts.take('Z')) return std::chrono::seconds(0);
  const bool negative = parts.take('-');
  if (!negative) parts.expect('+');
  const int hours = parts.number(2);
  parts.expect(':');
  const int minutes = parts.number(2);
  const int seconds = parts.take(':') ? parts.number(2) : 0;
  if (!parts.good) return {};
  const std::chrono::seconds offset =
      std::chrono::hours(hours) + std::chrono::minutes(minutes) + std::chrono::seconds(seconds);
  return negative ? -offset : offset;
}

}  // namespace

std::optional<Time> parse_journal_time(std::string_view text) {
  TimeParts parts{text};
  const int year = parts.number(4);
  parts.expect('-');
  const int month = parts.number(2);
  parts.expect('-');
  const int day = parts.number(2);
  if (!parts.take(' ')) parts.expect('T');
  const int hour = parts.number(2);
  parts.expect(':');
  const int minute = parts.number(2);
  parts.expect(':');
  const int second = parts.number(2);
  // Python writes zero, three or six digits of the fraction.
  const bool fraction = parts.take('.');
  int micros = fraction ? parts.number(3) * 1000 : 0;
  if (fraction && !parts.text.empty() && parts.text[0] >= '0' && parts.text[0] <= '9') micros += parts.number(3);
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  // std::chrono::system_clock cannot represent other years.
  if (!parts.good || !date.ok() || year < 1678 || year > 2261 || hour > 23 || minute > 59 || second > 59) return {};
  if (parts.text.empty()) {
    return local_time(date, hour, minute, second) + std::chrono::microseconds(micros);
  }
  const auto offset = read_offset(parts);
  if (!offset || !parts.text.empty()) return {};
  return std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
         std::chrono::seconds(second) + std::chrono::microseconds(micros) - *offset;
}

std::string to_journal_time(Time time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto micros = std::chrono::floor<std::chrono::microseconds>(time - seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}+00:00", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                     micros.count());
}

}  // namespace adaptdl::sched::tune
