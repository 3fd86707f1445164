#include "checkpoint/import.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/counted.h"
#include "checkpoint/manifest.h"
#include "checkpoint/prune.h"
#include "checkpoint/snapshot.h"

namespace adaptdl::checkpoint {

namespace fs = std::filesystem;

namespace {

std::uint64_t number_of(const std::string& name) {
  const auto number = checkpoint_number(name);
  if (!number) throw CheckpointError(fmt::format("'{}' is not the name of a checkpoint", name));
  return *number;
}

}  // namespace

Import::Import(const fs::path& directory, const std::string& name, std::uint64_t size)
    : directory_(directory), number_(number_of(name)) {
  make_directories(directory);
  delete_leftovers(directory, scan(directory));
  if (size > free_space(directory) && !make_room(directory, size))
    throw NoSpace(fmt::format("{}: no space for {}", directory.string(), name));
  saving_.emplace(directory, number_);
}

void Import::begin_file(const std::string& name) {
  end_file();
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    throw CheckpointError(fmt::format("invalid file name '{}' in a checkpoint", name));
  if (!files_.try_emplace(name).second) throw CheckpointError(fmt::format("duplicate file '{}' in a checkpoint", name));
  output_.emplace(saving_->path() / name);
}

void Import::write(std::string_view bytes) {
  if (!output_) throw CheckpointError("invalid checkpoint stream: data before the first file name");
  output_->write(bytes);
}

void Import::end_file() {
  if (!output_) return;
  FileInfo info = output_->finish();
  output_.reset();
  files_[info.name] = std::move(info);
}

void Import::check(const Manifest& manifest) const {
  std::size_t listed = 0;
  for (const StateInfo& state : manifest.states) {
    listed += state.files.size();
    for (const FileInfo& expected : state.files) {
      const auto found = files_.find(expected.name);
      if (found == files_.end() || found->second.size != expected.size || found->second.checksum != expected.checksum)
        throw Damage(fmt::format("'{}' of {} was not received intact", expected.name, checkpoint_name(number_)));
    }
  }
  if (listed + 1 != files_.size())
    throw Damage(fmt::format("{} has files that its manifest does not list", checkpoint_name(number_)));
}

Found Import::commit() {
  end_file();
  Found result{number_, directory_ / checkpoint_name(number_)};
  if (files_.contains(kManifestName)) {
    Manifest manifest = read_manifest(open_directory(saving_->path()), saving_->path()).manifest;
    check(manifest);
    const Scan present = scan(directory_);
    const std::uint64_t next = present.checkpoints.empty() ? 0 : present.checkpoints.front().number + 1;
    result.number = std::max(number_, next);
    result.path = directory_ / checkpoint_name(result.number);
    if (result.number != manifest.number) {
      manifest.number = result.number;
      OutputFile output(saving_->path() / kManifestName, OutputFile::Existing::kReplace);
      output.write(manifest_text(manifest));
      output.finish();
    }
  }
  saving_->commit(result.path);
  return result;
}

Found link_checkpoint(const fs::path& from, const fs::path& directory, std::uint64_t size) {
  const std::uint64_t number = number_of(from.filename().string());
  Found result{number, directory / from.filename()};
  make_directories(directory);
  SavingDirectory saving(directory, number);
  std::uint64_t linked = 0;
  try {
    for (const auto& entry : fs::directory_iterator(from)) {
      const fs::path link = saving.path() / entry.path().filename();
      fs::create_hard_link(entry.path(), link);
      linked += fs::file_size(link);
    }
  } catch (const fs::filesystem_error& error) {
    throw CheckpointError(fmt::format("cannot link the files of '{}': {}", from.string(), error.code().message()));
  }
  if (linked != size)
    throw Damage(fmt::format("the files of '{}' have {}, not {}", from.string(), counted(linked, "byte"), size));
  saving.commit(result.path);
  return result;
}

}  // namespace adaptdl::checkpoint
