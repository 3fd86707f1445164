// Paths as texts.
//
// Threading: plain functions.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::image {

// The shortest path that is the same: without "." and double or trailing slashes, and with ".." taken back where it
// can be; "." for none. Links are not looked at.
std::string clean_path(std::string_view path);

// With a '/' between them, if neither is empty.
std::string joined_path(const std::string& directory, const std::string& name);

}  // namespace adaptdl::image
