// Tests that quantities are parsed and formatted as the API server does. The expected values are k8s.io/apimachinery's.
#include "kube/api/quantity.h"

#include <doctest/doctest.h>

#include <fstream>
#include <limits>
#include <sstream>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"

namespace kube_quantity_test {

using namespace adaptdl;
using adaptdl::kube::Quantity;

namespace {

std::string canonical(std::string_view text) {
  try {
    return Quantity::parse(text).to_string();
  } catch (const Error&) {
    return "error";
  }
}

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("quantities are parsed and compared by value") {
  CHECK(Quantity::parse("1500m").value() == 1.5);
  CHECK(Quantity::parse("2Gi").value() == 2147483648.0);
  CHECK(Quantity::parse("1e3").value() == 1000);
  CHECK(Quantity::parse("-0.5Ki").value() == -512);
  CHECK(Quantity::parse("3E").value() == 3e18);
  CHECK(Quantity::parse("1000m") == Quantity::parse("1"));
  CHECK(Quantity::parse("1Ki") > Quantity::parse("1k"));
  CHECK(Quantity() == Quantity::parse("0"));
}

TEST_CASE("ceil and ceil_milli round away from zero and saturate at 64 bits") {
  CHECK(Quantity::parse("1n").ceil() == 1);
  CHECK(Quantity::parse("1500m").ceil() == 2);
  CHECK(Quantity::parse("-1500m").ceil() == -2);
  CHECK(Quantity::parse("1500m").ceil_milli() == 1500);
  CHECK(Quantity::parse("1u").ceil_milli() == 1);
  CHECK(Quantity::parse("16E").ceil() == kMost);
  CHECK(Quantity::parse("16P").ceil_milli() == kMost);
  CHECK(Quantity::parse("-16E").ceil() == -kMost);
}

TEST_CASE("a sum keeps the format of its left operand, unless that is zero") {
  Quantity sum;
  sum += Quantity::parse("512Mi");
  sum += Quantity::parse("512M");
  sum -= Quantity::parse("512M");
  sum += Quantity::parse("1536Mi");
  CHECK(sum.to_string() == "2Gi");
  Quantity cpus = Quantity::parse("1");
  cpus -= Quantity::parse("1500m");
  CHECK(cpus.to_string() == "-500m");
}

TEST_CASE("an overflowing sum or difference is an error") {
  Quantity sum = Quantity::parse("8e28");
  sum += sum;
  CHECK_THROWS_AS(sum += sum, Error);
  Quantity difference = Quantity::parse("-8e28");
  difference += difference;
  CHECK_THROWS_AS(difference -= Quantity::parse("8e28"), Error);
}

TEST_CASE("the error for an invalid quantity quotes it, and extreme exponents are rejected or rounded") {
  CHECK_GOLDEN(::testing::error_of([&] { Quantity::parse("1Gb"); }));
  CHECK(canonical("1e30") == "error");
  CHECK(canonical("1e999999999999999999999") == "error");
  CHECK(canonical("0e999999999999999999999") == "0");
  CHECK(canonical("1e-999999999999999999999") == "1e-9");
  CHECK(canonical(std::string(1000000, '1')) == "error");
}

TEST_CASE("quantities are parsed and formatted as in k8s.io/apimachinery") {
  std::ifstream file(ADAPTDL_QUANTITY_CASES);
  REQUIRE(file.good());
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream fields(line);
    std::string text, expected, milli;
    fields >> text >> expected >> milli;
    CHECK_MESSAGE(canonical(text) == expected, text);
    if (milli != "-") CHECK_MESSAGE(std::to_string(Quantity::parse(text).ceil_milli()) == milli, text);
    ++count;
  }
  CHECK(count > 200);
}

}  // namespace kube_quantity_test
