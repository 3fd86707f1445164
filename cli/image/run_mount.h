// The mounts of RUN: --mount=type=cache,target=/root/.cache and their like.
//
// Threading: plain functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "image/dockerfile.h"

namespace adaptdl::image {

using Expand = std::function<std::string(const std::string& value)>;

// Reads a mount. Without `expand` its values are yet to be expanded: what names a variable is left out, and what is
// wrong with it is found later. Throws Error that says why, but not where.
Mount parse_mount(std::string_view text, const Expand& expand = nullptr);

}  // namespace adaptdl::image
