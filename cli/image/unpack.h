// Unpacks a layer into a directory of its own, for an overlay mounted with "userxattr".
//
// Nothing outside the directory is written, whatever the layer contains: its links are resolved inside. Files of users
// other than the caller require root, or a namespace of subordinate ids (build_namespace.h).
// Threading: several processes may unpack one layer to the same path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "image/layer_reader.h"
#include "image/space_budget.h"

namespace adaptdl::image {

struct UnpackOptions {
  LayerLimits limits;
  std::stop_token stop;
  SpaceBudget* budget = nullptr;  // null: no limit
  // The directories of the layers below, topmost first. A directory that has entries in the layer, but is not listed
  // there, gets its attributes from them, or becomes the link that it is in them; without this, an overlay would show
  // it as root's, with mode 0755. So the result depends on the chain of layers up to this one, unless the layer lists
  // all its directories.
  std::vector<std::filesystem::path> lower;
  // Called before `lower` is read, to wait until these directories are complete.
  std::function<void()> await_lower;
};

struct Unpacked {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;  // of the tar stream
  // Devices cannot be created in a user namespace, and are omitted; sandboxes have a /dev of their own.
  std::size_t devices_left_out = 0;
  std::size_t unsaid_directories = 0;  // 0: the result does not depend on `lower`
};

// Unpacks the blob's file to `directory`, which must not exist yet. It is unpacked beside it and renamed when it is
// complete; if `directory` has been created in the meantime, that one is kept. An empty `diff_id` is not checked.
// Throws Error that names the layer if it is damaged, malicious or does not match `diff_id`; http::Stopped at a stop.
Unpacked unpack_layer(const std::filesystem::path& blob, const std::string& diff_id,
                      const std::filesystem::path& directory, const UnpackOptions& options = {});

// Removes what killed processes left of unpacking into directories in `parent`; drafts that are in use are kept.
void remove_unpack_drafts(const std::filesystem::path& parent);

// Removes a tree of any depth, without following links. A missing tree is not an error. Throws Error.
void remove_tree(const std::filesystem::path& directory);

}  // namespace adaptdl::image
