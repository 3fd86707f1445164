// Files and directories that only their user can access, whatever the umask is.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <system_error>

namespace adaptdl {

// The modes to create them with.
inline constexpr mode_t kPrivateFile = 0600;
inline constexpr mode_t kPrivateDirectory = 0700;

// Creates the directory and the missing ones above it. Those that exist keep their modes.
std::error_code create_private_directories(const std::filesystem::path& path);

// Creates an empty file for streams, which cannot set a mode. A file that exists keeps its contents and mode.
std::error_code create_private_file(const std::filesystem::path& path);

// Removes the permissions of other users from the file or directory.
std::error_code restrict_to_user(const std::filesystem::path& path);

// Does that for a directory and, if others had permissions on it, for everything in it too. Links in it are not
// followed.
std::error_code restrict_tree_to_user(const std::filesystem::path& directory);

}  // namespace adaptdl
