// Small files of settings and certificates.
//
// Threading: plain functions.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "socket.h"

namespace adaptdl::image {

// All of a regular file of at most 8 MiB; null if there is none of that name. Throws Error that names the file, as
// `what`, and why it cannot be read.
std::optional<std::string> read_small_file(const std::filesystem::path& file, std::string_view what);

// The same of an open file, which is named `what` alone; an empty descriptor and an errno of ENOENT or ENOTDIR: there
// is none.
std::optional<std::string> read_small_file(const net::Fd& file, std::string_view what);

// The same of a file of a build. One whose path is in the directory `context` is opened in it: links in it do not lead
// out.
std::optional<std::string> read_build_file(const std::filesystem::path& context, const std::filesystem::path& file,
                                           std::string_view what);

// What a file holds, as those of /proc; "" if it cannot be read.
std::string text_of_file(const std::filesystem::path& file);

}  // namespace adaptdl::image
