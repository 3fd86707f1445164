// Unpacks a layer into a directory of its own, which is one lower directory of an overlay mounted with "userxattr".
//
// Nothing outside the directory is written, whatever the layer says: a link in it leads nowhere but into it. What
// belongs to others than the caller needs root, or a namespace of subordinate ids (build_namespace.h).
// Threading: plain functions; several processes may unpack one layer to one place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>

#include "image/layer_reader.h"

namespace adaptdl::image {

struct UnpackOptions {
  LayerLimits limits;
  std::stop_token stop;
};

struct Unpacked {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;  // of the tar stream
  // Devices cannot be made in a user namespace; they are left out, as sandboxes have a /dev of their own.
  std::size_t devices_left_out = 0;
};

// Unpacks the blob's file to `directory`, which is not there before, and is whole as soon as it is: it is unpacked
// beside and renamed. If it has come to be meanwhile, that one stays. An empty `diff_id` is not checked. Throws Error,
// naming the layer, for one that is damaged or hostile, or whose bytes are not those of `diff_id`; http::Stopped.
Unpacked unpack_layer(const std::filesystem::path& blob, const std::string& diff_id,
                      const std::filesystem::path& directory, const UnpackOptions& options = {});

// Removes a tree with all in it, without following links, however deep it is; also what unpack_layer() left beside
// `directory` when it was killed. Nothing there is fine. Throws Error.
void remove_tree(const std::filesystem::path& directory);

}  // namespace adaptdl::image
