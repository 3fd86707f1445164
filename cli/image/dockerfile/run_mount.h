// Parses RUN's mounts, such as --mount=type=cache,target=/root/.cache.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "image/dockerfile/dockerfile.h"

namespace adaptdl::image {

using Expand = std::function<std::string(const std::string& value)>;

// Parses a mount. Without `expand`, values that contain variables are omitted; they are checked when they are expanded.
// Throws an Error with the reason, without file or line.
Mount parse_mount(std::string_view text, const Expand& expand = nullptr);

}  // namespace adaptdl::image
