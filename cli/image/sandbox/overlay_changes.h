// Converts the changes in an overlay's upper directory to a layer.
//
// Threading: no other process may write to the directory at the same time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <string>

#include "image/layer/layer_writer.h"

namespace adaptdl::image {

struct ChangesOptions {
  // The paths of created mount points, relative to the root; they are omitted, with everything below them.
  std::set<std::string> skip;
};

// Adds the contents of an upper directory (mounted with "userxattr") to `layer`, sorted by name, parents first:
// whiteouts, opaque directories, hard links, extended attributes. The root itself is not added. Sockets are omitted,
// since they are useless without their process. Returns the number of entries added. Throws an Error that names the
// path.
std::size_t add_overlay_changes(const std::filesystem::path& upper, LayerWriter& layer,
                                const ChangesOptions& options = {});

}  // namespace adaptdl::image
