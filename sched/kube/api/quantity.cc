#include "kube/api/quantity.h"

#include <fmt/format.h>

#include <array>
#include <boost/multiprecision/cpp_int.hpp>
#include <limits>
#include <optional>

#include "adaptdl/error.h"

namespace adaptdl::kube {
namespace {

using boost::multiprecision::cpp_int;
using Format = Quantity::Format;

constexpr std::size_t kMaxTextLength = 200;
constexpr std::int64_t kMaxShift = 400;  // powers of ten; a larger shift makes any amount too large or negligible
constexpr std::int64_t kNano = 1'000'000'000;
constexpr std::string_view kDecimalSuffixes[] = {"n", "u", "m", "", "k", "M", "G", "T", "P", "E"};  // 10^-9, 10^-6, ...
constexpr std::string_view kBinarySuffixes[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};            // 2^0, 2^10, ...

struct Scale {
  Format format;
  int base;
  std::int64_t exponent;
};

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw Error(fmt::format("invalid quantity '{}': {}", text.substr(0, kMaxTextLength), why));
}

std::string_view take_digits(std::string_view& text) {
  const std::string_view digits = text.substr(0, text.find_first_not_of("0123456789"));
  text.remove_prefix(digits.size());
  return digits;
}

std::optional<std::int64_t> parse_exponent(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const std::string_view digits = take_digits(text);
  if (digits.empty() || !text.empty()) return {};
  std::int64_t exponent = 0;
  for (const char digit : digits) exponent = std::min(10 * exponent + (digit - '0'), 10 * kMaxShift);
  return negative ? -exponent : exponent;
}

std::optional<Scale> parse_suffix(std::string_view suffix) {
  for (std::size_t i = 0; i < std::size(kDecimalSuffixes); ++i)
    if (suffix == kDecimalSuffixes[i]) return Scale{Format::kDecimalSi, 10, 3 * static_cast<std::int64_t>(i) - 9};
  for (std::size_t i = 1; i < std::size(kBinarySuffixes); ++i)
    if (suffix == kBinarySuffixes[i]) return Scale{Format::kBinarySi, 2, 10 * static_cast<std::int64_t>(i)};
  if (suffix[0] != 'e' && suffix[0] != 'E') return {};
  const std::optional<std::int64_t> exponent = parse_exponent(suffix.substr(1));
  if (!exponent) return {};
  return Scale{Format::kDecimalExponent, 10, *exponent};
}

cpp_int power_of_ten(std::int64_t exponent) {
  return boost::multiprecision::pow(cpp_int(10), static_cast<unsigned>(exponent));
}

// Scales `digits` to nanos and rounds up.
cpp_int to_nanos(const std::string& digits, std::int64_t decimals, const Scale& scale) {
  const std::size_t first = digits.find_first_not_of('0');
  if (first == std::string::npos) return 0;
  cpp_int amount(digits.substr(first));  // a leading zero would be parsed as octal
  std::int64_t shift = 9 - decimals;
  if (scale.base == 2)
    amount <<= static_cast<unsigned>(scale.exponent);
  else
    shift += scale.exponent;
  if (shift > kMaxShift) return power_of_ten(kMaxShift);
  if (shift >= 0) return amount * power_of_ten(shift);
  const cpp_int divisor = power_of_ten(std::min(-shift, kMaxShift));
  return (amount + divisor - 1) / divisor;
}

__extension__ using Int = __int128;
constexpr Int kMaxInt64 = std::numeric_limits<std::int64_t>::max();

std::int64_t ceil_of(Int nano, Int unit) {
  const Int away = nano < 0 ? (nano - unit + 1) / unit : (nano + unit - 1) / unit;
  return static_cast<std::int64_t>(std::clamp(away, -kMaxInt64, kMaxInt64));
}

std::string digits_of(Int number) { return fmt::format("{}", number); }

std::string decimal(Int nano, Format format) {
  std::size_t thousands = 0;
  const bool bounded = format == Format::kDecimalSi;
  while (nano % 1000 == 0 && (!bounded || thousands + 1 < std::size(kDecimalSuffixes))) {
    nano /= 1000;
    ++thousands;
  }
  if (bounded) return digits_of(nano) + std::string(kDecimalSuffixes[thousands]);
  const int exponent = 3 * static_cast<int>(thousands) - 9;
  return exponent == 0 ? digits_of(nano) : fmt::format("{}e{}", digits_of(nano), exponent);
}

std::string binary(Int units) {
  std::size_t power = 0;
  while (units % 1024 == 0 && power + 1 < std::size(kBinarySuffixes)) {
    units /= 1024;
    ++power;
  }
  return digits_of(units) + std::string(kBinarySuffixes[power]);
}

}  // namespace

Quantity Quantity::parse(std::string_view text) {
  if (text.empty()) refuse(text, "must not be empty");
  if (text.size() > kMaxTextLength) refuse(text, "too long");
  std::string_view rest = text;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  std::string digits(take_digits(rest));
  std::int64_t decimals = 0;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    const std::string_view fraction = take_digits(rest);
    digits += fraction;
    decimals = static_cast<std::int64_t>(fraction.size());
  }
  const std::optional<Scale> scale = parse_suffix(rest);
  if (!scale)
    refuse(text,
           "expected a number, optionally with a suffix (n u m k M G T P E Ki Mi Gi Ti Pi Ei) or an exponent such "
           "as e3");

  cpp_int nano = to_nanos(digits, decimals, *scale);
  if (scale->format == Format::kBinarySi) nano = std::min(nano, cpp_int(kMaxInt64) * kNano);
  if ((nano >> 126) != 0) refuse(text, "too large");
  Quantity quantity;
  quantity.nano_ = static_cast<Int>(nano);
  quantity.format_ = scale->format;
  if (scale->format == Format::kBinarySi && quantity.nano_ < kNano) quantity.format_ = Format::kDecimalSi;
  if (negative) quantity.nano_ = -quantity.nano_;
  return quantity;
}

std::string Quantity::to_string() const {
  if (nano_ == 0) return "0";
  const bool small = nano_ > -1024 * Int{kNano} && nano_ < 1024 * Int{kNano};
  if (format_ != Format::kBinarySi) return decimal(nano_, format_);
  return small || nano_ % kNano != 0 ? decimal(nano_, Format::kDecimalSi) : binary(nano_ / kNano);
}

double Quantity::value() const { return static_cast<double>(nano_) / static_cast<double>(kNano); }
std::int64_t Quantity::ceil() const { return ceil_of(nano_, kNano); }
std::int64_t Quantity::ceil_milli() const { return ceil_of(nano_, kNano / 1000); }

Quantity& Quantity::operator+=(const Quantity& other) {
  if (nano_ == 0) format_ = other.format_;
  if (__builtin_add_overflow(nano_, other.nano_, &nano_)) throw Error("the sum of the quantities is too large");
  return *this;
}

Quantity& Quantity::operator-=(const Quantity& other) {
  if (nano_ == 0) format_ = other.format_;
  if (__builtin_sub_overflow(nano_, other.nano_, &nano_))
    throw Error("the difference between the quantities is too large");
  return *this;
}

}  // namespace adaptdl::kube
