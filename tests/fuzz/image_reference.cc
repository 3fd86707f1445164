// Reads any text as an image reference or a digest: it is refused with a one-line error, or parsed and formatted so
// that parsing the result yields the same reference.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "adaptdl/error.h"
#include "image/base/digest.h"
#include "image/registry/reference.h"

using namespace adaptdl::image;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (is_digest(text)) require(hex_of(text).size() == 64 || hex_of(text).size() == 128);
  try {
    const Reference reference = Reference::parse(text);
    require(Reference::parse(reference.full()) == reference && Reference::parse(reference.brief()) == reference);
    require(is_registry(reference.registry) && is_repository(reference.repository));
    require(reference.digest.empty() || is_digest(reference.digest));
    require(!reference.version().empty() && reference.tag.size() <= 128);
  } catch (const adaptdl::UsageError& error) {
    const std::string_view message = error.what();
    require(std::none_of(message.begin(), message.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }));
  }
  return 0;
}
