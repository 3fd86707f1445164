// One checkpoint, open for reading: its manifest and its files, checked and held open, so that what was checked is what
// is read, even if the checkpoint is deleted meanwhile.
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
  // Opens the checkpoint at `path` and reads its manifest. Of the parts of ranks only that of `rank` is held open once
  // it is checked, so that many ranks do not need as many descriptors. Throws Damage, NewerFormat, or CheckpointError
  // if it cannot be read.
  explicit Snapshot(std::filesystem::path path, int rank = 0);
  // One that is no directory: `files`, by name, are all that the manifest lists. They need no check, and nothing is
  // read of them before a reader is asked for. `what` stands for the path in messages. Throws Damage if one is missing.
  Snapshot(std::string what, Manifest manifest, std::map<std::string, std::unique_ptr<Input>> files);

  const std::filesystem::path& path() const noexcept { return path_; }
  const Manifest& manifest() const noexcept { return file_.manifest; }
  const std::string& checksum() const noexcept { return file_.checksum; }
  const StateInfo* find(const std::string& state) const;

  // Opens all files and compares their sizes with the manifest. Throws as the constructor.
  void check_sizes();
  // Reads and checks every byte of the files, of one state if one is given. Throws as the constructor.
  void check_contents(const std::optional<std::string>& state = {});
  // As the two above, but goes on after a damage. Returns what is damaged, a line each.
  std::vector<std::string> find_damage();

  // A reader of a state, or of the part that `rank` saved of it; null if there is none. It reads from the files as they
  // were opened; those closed since are opened and checked again. It is of use as long as the snapshot.
  std::unique_ptr<Reader> reader(const std::string& state, std::optional<int> rank = {});

  // Closes the files of a state, whose space on the disk is held as long as they are open.
  void close(const std::string& state);

 private:
  struct OpenFile {
    std::unique_ptr<Input> input;
    bool checked = false;
    nlohmann::json values;            // of a JSON file
    std::vector<TensorPlace> places;  // of a safetensors file
  };
  OpenFile& open(const FileInfo& info);
  void drop_part_of_other(const StateInfo& state, const FileInfo& info);
  OpenFile& open_checked(const StateInfo& state, const FileInfo& info);
  void parse(const StateInfo& state, const FileInfo& info, OpenFile& file) const;

  friend class SnapshotReader;

  std::filesystem::path path_;
  int rank_;
  Fd directory_;  // none: it is no directory
  ManifestFile file_;
  std::map<std::string, OpenFile> open_;  // by name
};

inline constexpr std::string_view kCheckpointPrefix = "checkpoint-";

// The N of a directory named checkpoint-N, in decimal without leading zeros; none if it is named otherwise.
std::optional<std::uint64_t> checkpoint_number(const std::string& name);
std::string checkpoint_name(std::uint64_t number);

}  // namespace adaptdl::checkpoint
