// Reads any text as a quantity, a time and a duration: it is refused, or formatting and parsing preserve its value.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "adaptdl/error.h"
#include "kube/api/quantity.h"
#include "kube/api/timestamp.h"

using namespace adaptdl::kube;

namespace {

void check_quantity(std::string_view text) {
  try {
    const Quantity quantity = Quantity::parse(text);
    const std::string written = quantity.to_string();
    const Quantity again = Quantity::parse(written);
    if (again != quantity || again.to_string() != written) std::abort();
    if ((quantity.ceil() > 0) != (quantity.value() > 0) || (quantity.ceil_milli() < 0) != (quantity < Quantity()))
      std::abort();
    Quantity zero = quantity;
    zero -= again;
    if (zero != Quantity()) std::abort();
  } catch (const adaptdl::Error&) {
    // The text is not a quantity.
  }
}

void check_time(std::string_view text) {
  const auto time = parse_time(text);
  if (!time) return;
  const std::string written = to_string(*time);
  const auto again = parse_time(written);
  if (!again || to_string(*again) != written) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_quantity(text);
  check_time(text);
  parse_duration(text);
  return 0;
}
