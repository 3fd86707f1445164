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

}  // namespace adaptdl::image
