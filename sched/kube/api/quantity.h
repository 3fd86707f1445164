// Kubernetes quantities ("1500m", "2Gi", "1e3"), as in k8s.io/apimachinery, pkg/api/resource.
//
// The API server's syntax is accepted, and quantities are written in the API server's canonical form. Only amounts
// above 8*10^28, which no machine has, are rejected.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace adaptdl::kube {

// An exact amount with a resolution of one nano (10^-9).
class Quantity {
 public:
  enum class Format { kDecimalSi, kBinarySi, kDecimalExponent };
  Quantity() = default;
  // Rounds away from zero to a whole nano; amounts with a binary suffix are limited to 2^63-1. Throws an Error that
  // quotes the text.
  static Quantity parse(std::string_view text);
  std::string to_string() const;  // in canonical form, as the API server writes it
  double value() const;
  std::int64_t ceil() const;        // whole units, rounded away from zero and limited to ±INT64_MAX
  std::int64_t ceil_milli() const;  // thousandths, rounded and limited in the same way
  // The result keeps the left side's format, unless the left side is zero. Throw Error if the result overflows.
  Quantity& operator+=(const Quantity& other);
  Quantity& operator-=(const Quantity& other);
  friend std::strong_ordering operator<=>(const Quantity& a, const Quantity& b) { return a.nano_ <=> b.nano_; }
  friend bool operator==(const Quantity& a, const Quantity& b) { return a.nano_ == b.nano_; }

 private:
  __extension__ using Int = __int128;
  Int nano_ = 0;
  Format format_ = Format::kDecimalSi;
};

}  // namespace adaptdl::kube
