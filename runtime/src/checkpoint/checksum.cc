#include "checkpoint/checksum.h"

#include <fmt/core.h>
#ifdef ADAPTDL_XXH_DISPATCH
#include <xxh_x86dispatch.h>  // uses AVX2 or AVX-512 if the processor supports it
#endif

#include <algorithm>
#include <new>

namespace adaptdl::checkpoint {

Checksum::Checksum() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Checksum::update(std::span<const std::byte> data) { XXH3_128bits_update(state_.get(), data.data(), data.size()); }

std::string Checksum::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string checksum_of(std::string_view text) {
  Checksum checksum;
  checksum.update(std::as_bytes(std::span(text)));
  return checksum.hex();
}

bool is_checksum(std::string_view text) {
  return text.size() == 32 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace adaptdl::checkpoint
