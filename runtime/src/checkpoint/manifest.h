// Reads and writes manifest.json, which lists a checkpoint's contents, and defines the names of a checkpoint's files.
// docs/formats.md specifies both.
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

// The checkpoint was written by a later version. Loading an older checkpoint instead would discard the progress made
// with that version.
class NewerFormat : public CheckpointError {
  using CheckpointError::CheckpointError;
};

// The role of a file of a state, which the file's name encodes.
struct FileRole {
  bool tensors = false;     // safetensors if true, JSON if false
  std::optional<int> rank;  // the rank that saved this part; nullopt for the state's own file
};

// Encodes `name` as the beginning of a file name: letters, digits, '-' and '_' are kept, and every other byte becomes
// %XX, so that two states never share a file name.
std::string file_stem(const std::string& name);
std::string file_name(const std::string& state, const FileRole& role);
// Returns the role that the file name encodes, or nullopt if a state of that name cannot have such a file.
std::optional<FileRole> file_role(const std::string& state, const std::string& file);

// Throws an error of type E, whose message begins with `what`, if `name` is not a valid state name.
template <typename E>
void check_state_name(std::string_view name, const std::string& what);

// Returns the text of manifest.json. It ends with a checksum of all preceding bytes.
std::string manifest_text(const Manifest& manifest);

struct ManifestFile {
  Manifest manifest;
  std::string checksum;  // of manifest.json, which lists the checksums of all files; identifies the checkpoint
};

// Reads and checks the manifest.json of the checkpoint at `path`, which is open as `directory`. Throws Damage,
// NewerFormat, or the same errors as throw_read_error.
ManifestFile read_manifest(const Fd& directory, const std::filesystem::path& path);

}  // namespace adaptdl::checkpoint
