// Reads small files, such as settings and certificates.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace adaptdl::image {

inline constexpr std::size_t kMaxSmallFile = std::size_t{8} << 20;  // bytes

// Returns the contents of a regular file of at most kMaxSmallFile bytes; nullopt if it does not exist. Throws an Error
// that states the file, `what` and the reason.
std::optional<std::string> read_small_file(const std::filesystem::path& file, std::string_view what);

// Like the function above, but for an open file, which messages refer to as `what`. Returns nullopt for an empty
// descriptor if errno is ENOENT or ENOTDIR.
std::optional<std::string> read_small_file(const Fd& file, std::string_view what);

// Like read_small_file(), but for a file that a build uses. If the file is in the directory `context`, links in its
// path cannot lead outside that directory.
std::optional<std::string> read_build_file(const std::filesystem::path& context, const std::filesystem::path& file,
                                           std::string_view what);

// Returns the contents of a file, such as one in /proc; "" if it cannot be read.
std::string text_of_file(const std::filesystem::path& file);

}  // namespace adaptdl::image
