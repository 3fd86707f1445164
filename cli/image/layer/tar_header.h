// Writes the headers of a tar stream: POSIX ustar, preceded by a pax header for values that do not fit.
#pragma once

#include <cstdint>
#include <string>

#include "image/layer/entry.h"

namespace adaptdl::image {

inline constexpr std::size_t kTarBlock = 512;

// Returns the blocks before an entry's content. Equal entries yield equal bytes. Throws Error if the name of an
// extended attribute cannot be written.
std::string tar_header(const Entry& entry);
// Returns the number of zero bytes that follow content of this size.
constexpr std::size_t tar_padding(std::uint64_t size) {
  return static_cast<std::size_t>((kTarBlock - size % kTarBlock) % kTarBlock);
}

}  // namespace adaptdl::image
