// Reads small files: kubeconfigs, and other files that the user names.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::kube {

// Reads a whole file of at most 8 MiB; returns null if it does not exist. If the file cannot be read, throws an Error
// with the file's name, a description of its contents (`what`), and the reason.
std::optional<std::string> read_if_there(const std::filesystem::path& file, std::string_view what);

// Like read_if_there, but also throws Error if the file does not exist.
std::string read_file(const std::filesystem::path& file, std::string_view what);

}  // namespace adaptdl::kube
