// The header of an entry in a tar stream, as POSIX's ustar has it, with a pax header before it for what does not fit.
//
// Threading: plain functions.
#pragma once

#include <cstdint>
#include <string>

#include "image/entry.h"

namespace adaptdl::image {

inline constexpr std::size_t kTarBlock = 512;

// The blocks before an entry's content. The same entry gives the same bytes. Throws Error for an xattr whose name
// cannot be written.
std::string tar_header(const Entry& entry);
// The zeros after a content of that size.
constexpr std::size_t tar_padding(std::uint64_t size) {
  return static_cast<std::size_t>((kTarBlock - size % kTarBlock) % kTarBlock);
}

}  // namespace adaptdl::image
