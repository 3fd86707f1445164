// Adds a checkpoint that arrives in pieces, for example from another machine, to a directory of checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/saving_directory.h"
#include "checkpoint/store.h"

namespace adaptdl::checkpoint {

class Import {
 public:
  // `name` is the checkpoint's name where it was saved, and `size` is the size of its files in bytes. Creates the
  // directory if it is missing. If the checkpoint does not fit on the disk, deletes all checkpoints except the newest
  // whole one, as a save does. Throws CheckpointError (NoSpace if there is still too little space).
  Import(const std::filesystem::path& directory, const std::string& name, std::uint64_t size);

  // Begins the next file. Throws CheckpointError if the name is invalid or was used before.
  void begin_file(const std::string& name);
  // Appends to the file. Throws CheckpointError if no file has begun.
  void write(std::string_view bytes);

  // Commits the checkpoint as the newest in the directory. If it comes from adaptdl's runtime, checks its files against
  // its manifest, and changes its number if the directory already has checkpoints with that number or higher ones. A
  // checkpoint of another runtime, which has no manifest, keeps its name. Throws Damage if the files do not match the
  // manifest, and CheckpointError if they cannot be written or a checkpoint with that name exists. If this function
  // throws or is not called, nothing is left of the checkpoint.
  Found commit();

 private:
  void end_file();
  void check(const Manifest& manifest) const;

  const std::filesystem::path directory_;
  const std::uint64_t number_;  // in the checkpoint's name
  std::optional<SavingDirectory> saving_;
  std::optional<OutputFile> output_;
  std::map<std::string, FileInfo> files_;  // by name; without values while the file is being written
};

// Adds the checkpoint at `from`, which must be on the same file system, to `directory` under the same name. The two
// share their files, so no data is copied. `size` is the size of the files in bytes. Throws
// CheckpointError if the files cannot be shared or have another size, for example because `from` is being deleted, or
// if the directory has a checkpoint with that name.
Found link_checkpoint(const std::filesystem::path& from, const std::filesystem::path& directory, std::uint64_t size);

}  // namespace adaptdl::checkpoint
