// What changed in an overlay: its upper directory as a layer.
//
// Threading: a plain function; nothing else writes to the directory meanwhile.
#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <string>

#include "image/layer_writer.h"

namespace adaptdl::image {

struct ChangesOptions {
  // Paths from the root that are left out with all below them, because what mounted there made them.
  std::set<std::string> skip;
};

// Adds all of an upper directory (mounted with "userxattr") to `layer`, sorted by names, parents first: whiteouts,
// opaque directories, hard links, xattrs. The root itself is no entry. A socket is left out, as it lives only as long
// as who listens. Returns how many were added. Throws Error that names the path.
std::size_t add_overlay_changes(const std::filesystem::path& upper, LayerWriter& layer,
                                const ChangesOptions& options = {});

}  // namespace adaptdl::image
