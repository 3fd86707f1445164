// A checkpoint that is open for reading. Its manifest and files are checked and held open, so that the data read is the
// data that was checked, even if the checkpoint is deleted in the meantime.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace adaptdl::checkpoint {

class Snapshot {
 public:
  // Opens the checkpoint at `path` and reads its manifest. Of the ranks' parts, only the one that `rank` saved is held
  // open after the check, so that a checkpoint saved by many ranks does not need a descriptor for each of them. Throws
  // Damage, NewerFormat, or CheckpointError if it cannot be read.
  explicit Snapshot(std::filesystem::path path, int rank = 0);
  // Creates a snapshot that is not a directory. `files` contains, by name, all files that the manifest lists. They are
  // not checked, and only reader() reads them. `what` replaces the path in messages. Throws Damage if a file is
  // missing.
  Snapshot(std::string what, Manifest manifest, std::map<std::string, std::unique_ptr<Input>> files);

  const std::filesystem::path& path() const noexcept { return path_; }
  const Manifest& manifest() const noexcept { return file_.manifest; }
  const std::string& checksum() const noexcept { return file_.checksum; }
  const StateInfo* find(const std::string& state) const;

  // Opens all files and compares their sizes with the manifest. Throws the same errors as the constructor.
  void check_sizes();
  // Reads and checks every byte of all files, or only of the files of `state`, if given. Throws the same errors as the
  // constructor.
  void check_contents(const std::optional<std::string>& state = {});
  // Performs both checks, but continues after damage. Returns one line for each damaged file.
  std::vector<std::string> find_damage();

  // Returns a reader for a state, or for the part of it that `rank` saved; nullptr if there is none. Files that were
  // closed are opened and checked again. The reader is valid until the state is closed or the snapshot is destroyed.
  std::unique_ptr<Reader> reader(const std::string& state, std::optional<int> rank = {});

  // Closes a state's files. Until then, they occupy disk space even if the checkpoint is deleted.
  void close(const std::string& state);

 private:
  struct OpenFile {
    std::unique_ptr<Input> input;
    bool checked = false;
    nlohmann::json values;            // the values in a JSON file
    std::vector<TensorPlace> places;  // the tensors in a safetensors file
  };
  OpenFile& open(const FileInfo& info);
  void drop_part_of_other(const StateInfo& state, const FileInfo& info);
  OpenFile& open_checked(const StateInfo& state, const FileInfo& info);
  void parse(const StateInfo& state, const FileInfo& info, OpenFile& file) const;

  friend class SnapshotReader;

  std::filesystem::path path_;
  int rank_;
  Fd directory_;  // invalid if the snapshot is not a directory
  ManifestFile file_;
  std::map<std::string, OpenFile> open_;  // by name
};

inline constexpr std::string_view kCheckpointPrefix = "checkpoint-";

// Returns the number N if `name` is checkpoint-N (decimal, without leading zeros), or nullopt for any other name.
std::optional<std::uint64_t> checkpoint_number(const std::string& name);
std::string checkpoint_name(std::uint64_t number);

}  // namespace adaptdl::checkpoint
