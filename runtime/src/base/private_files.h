// Creates files and directories that only their owner can access, regardless of the umask.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <system_error>

namespace adaptdl {

// The modes of created files and directories.
inline constexpr mode_t kPrivateFile = 0600;
inline constexpr mode_t kPrivateDirectory = 0700;

// Creates the directory and its missing parents. Existing directories keep their modes.
std::error_code create_private_directories(const std::filesystem::path& path);

// Creates an empty file for use with streams, which cannot set a mode. An existing file keeps its contents and mode.
std::error_code create_private_file(const std::filesystem::path& path);

// Removes the permissions of other users from the file or directory.
std::error_code restrict_to_user(const std::filesystem::path& path);

// Removes the permissions of other users from the directory and, if they had any, from everything in it. Symbolic links
// in it are not followed.
std::error_code restrict_tree_to_user(const std::filesystem::path& directory);

}  // namespace adaptdl
