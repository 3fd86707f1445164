// Unpacks a layer into a directory of its own, which is one lower directory of an overlay mounted with "userxattr".
//
// Nothing outside the directory is written, whatever the layer says: a link in it leads nowhere but into it. What
// belongs to others than the caller needs root, or a namespace of subordinate ids (build_namespace.h).
// Threading: plain functions; several processes may unpack one layer to one place.
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
  SpaceBudget* budget = nullptr;  // null: no bound
  // The directories of the layers below, the highest first. A directory that the layer has something in but does not
  // say itself looks as it does there, or is the link that it is there; otherwise, an overlay would show it as root's,
  // with mode 0755. So what is unpacked belongs to the chain of layers up to this one, not to this one alone, unless it
  // says all its directories.
  std::vector<std::filesystem::path> lower;
  // Called before they are looked at: they may be made at the same time.
  std::function<void()> await_lower;
};

struct Unpacked {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;  // of the tar stream
  // Devices cannot be made in a user namespace; they are left out, as sandboxes have a /dev of their own.
  std::size_t devices_left_out = 0;
  std::size_t unsaid_directories = 0;  // 0: what is unpacked does not depend on `lower`
};

// Unpacks the blob's file to `directory`, which is not there before, and is whole as soon as it is: it is unpacked
// beside and renamed. If it has come to be meanwhile, that one stays. An empty `diff_id` is not checked. Throws Error,
// naming the layer, for one that is damaged or hostile, or whose bytes are not those of `diff_id`; http::Stopped.
Unpacked unpack_layer(const std::filesystem::path& blob, const std::string& diff_id,
                      const std::filesystem::path& directory, const UnpackOptions& options = {});

// Removes what killed processes left of unpacking into directories in `parent`; what others are at stays.
void remove_unpack_drafts(const std::filesystem::path& parent);

// Removes a tree with all in it, without following links, however deep it is. Nothing there is fine. Throws Error.
void remove_tree(const std::filesystem::path& directory);

}  // namespace adaptdl::image
