#include "kube/api/timestamp.h"

#include <fmt/chrono.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "base/text_parts.h"

namespace adaptdl::kube {
namespace {

using std::chrono::nanoseconds;
__extension__ using Wide = __int128;

// Reads from the front of a text. Once a part has failed to match, good() returns false.
class TimeReader {
 public:
  explicit TimeReader(std::string_view text) : text_(text) {}
  bool good() const { return good_; }
  bool at_end() const { return text_.empty(); }

  bool skip(std::string_view expected) {
    if (!text_.starts_with(expected)) return false;
    text_.remove_prefix(expected.size());
    return true;
  }
  void expect(std::string_view expected) { good_ = skip(expected) && good_; }
  // Reads a number that has exactly `digits` digits and is at most `max`.
  int number(std::size_t digits, int max) {
    int value = 0;
    good_ = good_ && text_.size() >= digits;
    for (std::size_t i = 0; good_ && i < digits; ++i) {
      good_ = is_digit(text_[i]);
      value = 10 * value + (text_[i] - '0');
    }
    if (good_) text_.remove_prefix(digits);
    good_ = good_ && value <= max;
    return value;
  }
  // Reads the digits after a decimal point, as nanoseconds; digits after the ninth are dropped.
  int fraction() {
    int value = 0, unit = 100'000'000;
    good_ = good_ && !text_.empty() && is_digit(text_[0]);
    for (; good_ && !text_.empty() && is_digit(text_[0]); text_.remove_prefix(1), unit /= 10)
      value += unit * (text_[0] - '0');
    return value;
  }
  // Reads "Z" or an offset such as "+01:30".
  std::chrono::minutes offset() {
    if (skip("Z") || skip("z")) return {};
    const bool east = skip("+");
    if (!east) expect("-");
    const int hours = number(2, 23);
    expect(":");
    const int minutes = 60 * hours + number(2, 59);
    return std::chrono::minutes(east ? minutes : -minutes);
  }

 private:
  std::string_view text_;
  bool good_ = true;
};

std::optional<std::int64_t> unit_of(std::string_view name) {
  constexpr std::pair<std::string_view, std::int64_t> kUnits[] = {
      {"ns", 1},         {"us", 1'000},        {"\u00b5s", 1'000},    {"\u03bcs", 1'000},
      {"ms", 1'000'000}, {"s", 1'000'000'000}, {"m", 60'000'000'000}, {"h", 3'600'000'000'000}};
  for (const auto& [unit, size] : kUnits)
    if (name == unit) return size;
  return {};
}

// Removes one part, such as "1.5h", from the front of the text and returns its nanoseconds. Returns null if the part is
// invalid or too long.
std::optional<Wide> take_part(std::string_view& text) {
  Wide whole = 0, fraction = 0, scale = 1;
  std::size_t at = 0, digits = 0;
  constexpr Wide kMaxSeconds = std::numeric_limits<std::int64_t>::max();
  for (; at < text.size() && is_digit(text[at]); ++at, ++digits) {
    whole = 10 * whole + (text[at] - '0');
    if (whole > kMaxSeconds) return {};
  }
  if (at < text.size() && text[at] == '.')
    for (++at; at < text.size() && is_digit(text[at]); ++at, ++digits) {
      if (scale >= 1'000'000'000'000'000) continue;  // less than a nanosecond in any unit
      fraction = 10 * fraction + (text[at] - '0');
      scale *= 10;
    }
  if (digits == 0) return {};
  text.remove_prefix(at);
  const std::string_view name = text.substr(0, text.find_first_of(".0123456789"));
  const std::optional<std::int64_t> unit = unit_of(name);
  if (!unit) return {};
  text.remove_prefix(name.size());
  return whole * *unit + fraction * *unit / scale;
}

}  // namespace

std::optional<Time> parse_time(std::string_view text) {
  TimeReader reader(text);
  const int year = reader.number(4, 9999);
  reader.expect("-");
  const int month = reader.number(2, 12);
  reader.expect("-");
  const int day = reader.number(2, 31);
  if (!reader.skip("t")) reader.expect("T");
  const int hours = reader.number(2, 23);
  reader.expect(":");
  const int minutes = reader.number(2, 59);
  reader.expect(":");
  const int seconds = reader.number(2, 59);
  const int nanos = reader.skip(".") ? reader.fraction() : 0;
  const std::chrono::minutes offset = reader.offset();
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!reader.good() || !reader.at_end() || !date.ok()) return {};
  // RFC 3339 permits years that system_clock cannot represent.
  if (year < 1678 || year > 2261) return {};
  return Time(std::chrono::sys_days(date)) + std::chrono::hours(hours) + std::chrono::minutes(minutes) +
         std::chrono::seconds(seconds) + std::chrono::duration_cast<Time::duration>(nanoseconds(nanos)) - offset;
}

std::string to_string(Time time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto micros = std::chrono::floor<std::chrono::microseconds>(time - seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                     micros.count());
}

std::optional<nanoseconds> parse_duration(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text == "0") return nanoseconds(0);
  if (text.empty()) return {};
  Wide total = 0;
  while (!text.empty()) {
    const std::optional<Wide> part = take_part(text);
    if (!part) return {};
    total += *part;
    if (total > std::numeric_limits<std::int64_t>::max()) return {};
  }
  const auto nanos = static_cast<std::int64_t>(total);
  return nanoseconds(negative ? -nanos : nanos);
}

}  // namespace adaptdl::kube
