// Functions on path strings. They do not access the file system.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::image {

// Returns the shortest equivalent path: without ".", double slashes or trailing slashes, and with ".." resolved where
// possible; "." if nothing is left. Symbolic links are not resolved.
std::string clean_path(std::string_view path);

// Joins `directory` and `name` with a '/', unless one of them is empty.
std::string joined_path(const std::string& directory, const std::string& name);

}  // namespace adaptdl::image
