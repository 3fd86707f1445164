// Small files that say how a cluster is reached.
//
// Threading: plain functions.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::kube {

// All of a file of at most 8 MiB; null if there is none of that name. Throws Error that names the file, as `what`, and
// why it cannot be read.
std::optional<std::string> read_if_there(const std::filesystem::path& file, std::string_view what);

// The same, but a file that is not there is an error too.
std::string read_file(const std::filesystem::path& file, std::string_view what);

// Without the white space around it, as of a file that ends with a line.
std::string trimmed(std::string_view text);

}  // namespace adaptdl::kube
