// manifest.json and the names of files: what a checkpoint consists of. Both are specified in docs/formats.md.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "adaptdl/checkpoint.h"
#include "checkpoint/files.h"

namespace adaptdl::checkpoint {

inline constexpr int kFormat = 1;
inline constexpr const char* kManifestName = "manifest.json";

// Written by a later version: to load something older instead would throw away what that version did.
class NewerFormat : public CheckpointError {
  using CheckpointError::CheckpointError;
};

// What a file of a state holds, which its name says.
struct FileRole {
  bool tensors = false;     // safetensors, else JSON
  std::optional<int> rank;  // the part of this rank, else the state's own
};

// `name` as the beginning of a file name: letters, digits, '-' and '_' as they are, all else as %XX, so that no state's
// file can be taken for another's, whatever its name.
std::string file_stem(const std::string& name);
std::string file_name(const std::string& state, const FileRole& role);
// None if no state of that name has such a file.
std::optional<FileRole> file_role(const std::string& state, const std::string& file);

// Throws Error of type E, which begins with `what`, on a name that no state can have.
template <typename E>
void check_state_name(std::string_view name, const std::string& what);

// The text of manifest.json. It ends with a checksum over all before it.
std::string manifest_text(const Manifest& manifest);

struct ManifestFile {
  Manifest manifest;
  std::string checksum;  // that of the manifest, which through those in it stands for the whole checkpoint
};

// Reads and checks manifest.json of the checkpoint at `path`, open as `directory`. Throws Damage, NewerFormat, or as
// throw_read_error.
ManifestFile read_manifest(const Fd& directory, const std::filesystem::path& path);

}  // namespace adaptdl::checkpoint
