// Unpacks a layer into its own directory, for an overlay mounted with "userxattr".
//
// Nothing outside the directory is ever written: the layer's links are resolved inside it. Files that belong to users
// other than the caller require root, or a namespace with subordinate IDs (build_namespace.h).
// Threading: several processes may unpack the same layer to the same path concurrently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "image/base/space_budget.h"
#include "image/layer/layer_reader.h"

namespace adaptdl::image {

struct UnpackOptions {
  LayerLimits limits;
  std::stop_token stop;
  SpaceBudget* budget = nullptr;  // null for no limit
  // The directories of the layers below, topmost first. A directory that contains entries in the layer, but is not
  // listed there, receives its attributes from the layers below; if those layers contain a link instead, the same link
  // is created. Without these attributes, an overlay would show the directory as root's, with mode 0755. The result
  // therefore depends on the layers below, unless the layer lists all its directories.
  std::vector<std::filesystem::path> lower;
  // Called before `lower` is read, to wait until these directories are complete.
  std::function<void()> await_lower;
};

struct Unpacked {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;  // size of the tar stream
  // Devices cannot be created in a user namespace, and are omitted; sandboxes have their own /dev.
  std::size_t devices_left_out = 0;
  std::size_t implicit_directories = 0;  // if 0, the result does not depend on `lower`
};

// Unpacks the blob's file to `directory`, which must not exist yet. The layer is unpacked to a draft directory next to
// `directory`; the draft is renamed when it is complete. If another process creates `directory` first, that directory
// is kept. An empty `diff_id` matches any content. Throws an Error that names the layer if it is damaged or malicious,
// or does not match `diff_id`, and http::Stopped after a stop request.
Unpacked unpack_layer(const std::filesystem::path& blob, const std::string& diff_id,
                      const std::filesystem::path& directory, const UnpackOptions& options = {});

// Removes drafts that killed processes left in `parent`; drafts that are in use are kept.
void remove_unpack_drafts(const std::filesystem::path& parent);

// Removes a tree of any depth, without following links. A missing tree is not an error. Throws Error.
void remove_tree(const std::filesystem::path& directory);

}  // namespace adaptdl::image
