// Kubernetes' quantities ("1500m", "2Gi", "1e3"): k8s.io/apimachinery, pkg/api/resource.
//
// Plain values. What the API server takes is taken, and written in the same canonical form; but amounts beyond 8*10^28
// are refused, which no machine has.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace adaptdl::kube {

// An exact amount, from a nano to beyond an exa.
class Quantity {
 public:
  enum class Format { kDecimalSi, kBinarySi, kDecimalExponent };
  Quantity() = default;
  // What is finer than a nano is rounded away from zero; binary ones end at 2^63-1. Throws Error that quotes the text.
  static Quantity parse(std::string_view text);
  std::string to_string() const;  // in canonical form, as the API server writes it
  double value() const;
  std::int64_t ceil() const;        // whole units, rounded away from zero; at most INT64_MAX, at least -INT64_MAX
  std::int64_t ceil_milli() const;  // thousandths, the same
  // The format is the left side's, unless that is zero. Throw Error where the sum is beyond all bounds.
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
