#include "image/dockerfile/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "adaptdl/error.h"
#include "base/text_parts.h"
#include "image/base/digest.h"

namespace adaptdl::image {
namespace {

constexpr unsigned kMaxMode = 07777;

[[noreturn]] void refuse_value(std::string_view text, std::string_view what) {
  throw Error(fmt::format("invalid value '{}': expected {}", text, what));
}

std::optional<unsigned> number_of(std::string_view text, unsigned base, unsigned max) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, static_cast<int>(base));
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || value > max) return {};
  return value;
}

// Parses a decimal fraction at the start of `text`, and removes it.
std::optional<double> take_decimal(std::string_view& text) {
  const std::size_t size = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view digits = text.substr(0, size);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + size, value, std::chars_format::fixed);
  if (error != std::errc() || end != digits.data() + size) return {};
  text.remove_prefix(size);
  return value;
}

bool is_git(std::string_view source) {
  const std::string_view path = source.substr(0, source.find_first_of("#?"));
  const std::size_t at = source.find('@'), colon = source.find(':');
  const bool scp = at != std::string_view::npos && colon != std::string_view::npos && at < colon &&
                   source.substr(0, colon).find('/') == std::string_view::npos;
  return source.starts_with("git://") || source.starts_with("ssh://") || scp ||
         (is_url(source) && path.ends_with(".git"));
}

unsigned class_bits(char who) { return who == 'u' ? 04700 : who == 'g' ? 02070 : who == 'o' ? 01007 : 07777; }

// Returns a permission's bits for all classes.
unsigned permission_bits(char what, unsigned mode, bool is_directory) {
  switch (what) {
    case 'r':
      return 0444;
    case 'w':
      return 0222;
    case 'x':
      return 0111;
    case 'X':
      return is_directory || (mode & 0111) != 0 ? 0111 : 0;
    case 's':
      return 06000;
    case 't':
      return 01000;
    default:  // the bits of another class
      const unsigned bits = (what == 'u' ? mode >> 6 : what == 'g' ? mode >> 3 : mode) & 7;
      return bits << 6 | bits << 3 | bits;
  }
}

}  // namespace

FileMode FileMode::parse(std::string_view text, std::string_view instruction) {
  const auto refuse = [&] {
    throw Error(
        fmt::format("{} --chmod: invalid value '{}': expected an octal mode from 0 to 07777, or a symbolic one "
                    "such as u=rwX,go=rX",
                    instruction, text));
  };
  FileMode mode;
  mode.text_ = text;
  if (const auto octal = number_of(text, 8, kMaxMode)) {
    mode.octal_ = true;
    mode.mode_ = *octal;
    return mode;
  }
  for (const std::string& clause : split(text, ',')) {
    std::size_t at = 0;
    unsigned who = 0;
    for (; at < clause.size() && std::string_view("ugoa").find(clause[at]) != std::string_view::npos; ++at)
      who |= class_bits(clause[at]);
    if (at == 0) who = class_bits('a');
    if (at == clause.size()) refuse();
    while (at < clause.size()) {
      const char operation = clause[at++];
      if (std::string_view("+-=").find(operation) == std::string_view::npos) refuse();
      const std::size_t end = std::min(clause.find_first_of("+-=", at), clause.size());
      const std::string what = clause.substr(at, end - at);
      const bool is_class = what.size() == 1 && what.find_first_of("ugo") == 0;
      if (!is_class && what.find_first_not_of("rwxXst") != std::string::npos) refuse();
      mode.changes_.push_back({who, operation, what});
      at = end;
    }
  }
  return mode;
}

unsigned FileMode::apply(unsigned mode, bool is_directory) const {
  if (octal_) return mode_;
  for (const Change& change : changes_) {
    unsigned bits = 0;
    for (const char what : change.what) bits |= permission_bits(what, mode, is_directory);
    bits &= change.who;
    if (change.operation == '=') {
      // chmod keeps a directory's set-id bits unless the change names them.
      mode = (mode & ~(change.who & (is_directory ? 01777 : kMaxMode))) | bits;
    } else {
      mode = change.operation == '+' ? mode | bits : mode & ~bits;
    }
  }
  return mode;
}

bool is_plain(std::string_view text) { return text.find_first_of("$\"'\\`") == std::string_view::npos; }

std::chrono::nanoseconds parse_duration(std::string_view text) {
  constexpr std::string_view kWhat = "a duration such as 30s, 1m30s or 500ms";
  using Unit = std::pair<std::string_view, double>;
  // Longer units come first.
  static constexpr std::array<Unit, 8> kUnits{
      {{"ns", 1}, {"us", 1e3}, {"µs", 1e3}, {"μs", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}}};
  if (text == "0") return {};
  if (text.empty()) refuse_value(text, kWhat);
  double sum = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const auto value = take_decimal(rest);
    const auto unit =
        std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return rest.starts_with(u.first); });
    if (!value || unit == kUnits.end()) refuse_value(text, kWhat);
    rest.remove_prefix(unit->first.size());
    sum += *value * unit->second;
  }
  if (sum > 9e18) refuse_value(text, "a duration of at most 290 years");
  if (sum != 0 && sum < 1e6) refuse_value(text, "a duration of at least 1ms");
  return std::chrono::nanoseconds(std::llround(sum));
}

std::size_t parse_size(std::string_view text) {
  constexpr std::string_view kWhat = "a size such as 64m or 1GiB";
  std::string_view rest = text;
  const auto value = take_decimal(rest);
  if (!value) refuse_value(text, kWhat);
  std::string unit = lower(trimmed(rest));
  if (unit.size() > 1 && unit.ends_with("ib"))
    unit.resize(unit.size() - 2);
  else if (unit.ends_with('b'))
    unit.pop_back();
  constexpr std::string_view kUnits = "kmgtp";
  if (unit.size() > 1 || (unit.size() == 1 && kUnits.find(unit[0]) == std::string_view::npos))
    refuse_value(text, kWhat);
  const double bytes = std::ldexp(*value, unit.empty() ? 0 : 10 * static_cast<int>(kUnits.find(unit[0]) + 1));
  if (bytes > 9e18) refuse_value(text, kWhat);
  return static_cast<std::size_t>(bytes);
}

unsigned parse_number(std::string_view text, unsigned base, unsigned max) {
  const auto value = number_of(text, base, max);
  if (!value)
    refuse_value(text, fmt::format("{} from 0 to {}", base == 8 ? "an octal number" : "an integer",
                                   base == 8 ? fmt::format("{:o}", max) : fmt::format("{}", max)));
  return *value;
}

bool parse_bool(std::string_view text) {
  for (const std::string_view yes : {"1", "t", "T", "true", "TRUE", "True"})
    if (text == yes) return true;
  for (const std::string_view no : {"0", "f", "F", "false", "FALSE", "False"})
    if (text == no) return false;
  refuse_value(text, "true or false");
}

std::vector<std::string> parse_ports(std::string_view text) {
  constexpr std::string_view kWhat = "a port from 0 to 65535 or a range of ports, optionally with /tcp, /udp or /sctp";
  constexpr unsigned kMaxPort = 65535;
  const std::string_view inner = text.substr(text.rfind(':') + 1);
  const std::size_t slash = inner.find('/');
  const std::string protocol = slash == std::string_view::npos ? "tcp" : lower(inner.substr(slash + 1));
  if (protocol != "tcp" && protocol != "udp" && protocol != "sctp") refuse_value(text, kWhat);
  const std::string_view range = inner.substr(0, slash);
  const std::size_t dash = range.find('-');
  const auto first = number_of(range.substr(0, dash), 10, kMaxPort);
  const auto last = dash == std::string_view::npos ? first : number_of(range.substr(dash + 1), 10, kMaxPort);
  if (!first || !last || *last < *first) refuse_value(text, kWhat);
  std::vector<std::string> ports;
  for (unsigned port = *first; port <= *last; ++port) ports.push_back(fmt::format("{}/{}", port, protocol));
  return ports;
}

void check_copy_source(std::string_view source, bool add, bool checksum) {
  if (is_git(source))
    throw Error(fmt::format("{} {}: git repositories are not supported; clone the repository next to the Dockerfile",
                            add ? "ADD" : "COPY", source));
  if (is_url(source) && !add) throw Error(fmt::format("COPY {}: use ADD to copy from a URL", source));
  if (!is_url(source) && checksum) throw Error("ADD --checksum requires a URL as its source");
}

void check_checksum(std::string_view digest) {
  if (!is_digest(digest))
    throw Error(fmt::format("ADD --checksum: expected sha256:HEX or sha512:HEX, got '{}'", digest));
}

void check_signal(std::string_view text) {
  static constexpr std::array<std::string_view, 34> kNames{
      "ABRT", "ALRM", "BUS",  "CHLD", "CLD",  "CONT", "FPE",    "HUP",    "ILL",  "INT", "IO",   "IOT",
      "KILL", "PIPE", "POLL", "PROF", "PWR",  "QUIT", "SEGV",   "STKFLT", "STOP", "SYS", "TERM", "TRAP",
      "TSTP", "TTIN", "TTOU", "URG",  "USR1", "USR2", "VTALRM", "WINCH",  "XCPU", "XFSZ"};
  constexpr unsigned kMaxSignal = 64, kRealTime = 30;
  std::string name = upper(text);
  if (name.starts_with("SIG")) name.erase(0, 3);
  const bool real_time = name == "RTMIN" || name == "RTMAX" ||
                         (name.starts_with("RTMIN+") && number_of(name.substr(6), 10, kRealTime / 2)) ||
                         (name.starts_with("RTMAX-") && number_of(name.substr(6), 10, kRealTime / 2 - 1));
  const auto number = number_of(text, 10, kMaxSignal);
  if (!real_time && number.value_or(0) == 0 && std::find(kNames.begin(), kNames.end(), name) == kNames.end())
    refuse_value(text, "a signal name such as SIGTERM, or a number from 1 to 64");
}

}  // namespace adaptdl::image
