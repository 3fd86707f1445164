#include "checkpoint/snapshot.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/counted.h"
#include "checkpoint/json_text.h"

namespace adaptdl::checkpoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr std::uint64_t kMaxNumber = 999'999'999'999'999'999;
constexpr std::size_t kTensorChunk = std::size_t{4} << 20;

std::string last_name(const fs::path& path) {
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

}  // namespace

std::optional<std::uint64_t> checkpoint_number(const std::string& name) {
  if (!name.starts_with(kCheckpointPrefix)) return {};
  std::uint64_t number = 0;
  const char* end = name.data() + name.size();
  const auto [next, error] = std::from_chars(name.data() + kCheckpointPrefix.size(), end, number);
  if (error != std::errc() || next != end || number > kMaxNumber || checkpoint_name(number) != name) return {};
  return number;
}

std::string checkpoint_name(std::uint64_t number) { return fmt::format("{}{}", kCheckpointPrefix, number); }

// Reads from files that the snapshot holds open. If a state has no files, its reader is empty.
class SnapshotReader : public Reader {
 public:
  SnapshotReader(const Snapshot& snapshot, std::string what, const Snapshot::OpenFile* values,
                 const Snapshot::OpenFile* data)
      : snapshot_(snapshot), what_(std::move(what)), values_(values), data_(data) {
    if (data_ != nullptr)
      for (const TensorPlace& place : data_->places) {
        tensors_.push_back(place.info);
        places_[place.info.name] = &place;
      }
  }

  nlohmann::json json(std::string_view name) const override {
    if (!has_json(name)) throw CheckpointError(fmt::format("{} has no JSON value '{}'", what_, name));
    return decode_json(values_->values.at(std::string(name)));
  }

  bool has_json(std::string_view name) const override {
    return values_ != nullptr && values_->values.contains(std::string(name));
  }

  const std::vector<TensorInfo>& tensors() const override { return tensors_; }

  void tensor(std::string_view name,
              const std::function<void(std::size_t, std::span<const std::byte>)>& sink) const override {
    const TensorPlace& place = find_place(name);
    std::vector<std::byte> buffer(std::min<std::uint64_t>(kTensorChunk, place.end - place.begin));
    for (std::uint64_t at = place.begin; at < place.end; at += buffer.size()) {
      const auto chunk = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), place.end - at));
      data_->input->read(at, chunk);
      sink(at - place.begin, chunk);
    }
    data_->input->check_unchanged();
  }

  void tensor(std::string_view name, std::span<std::byte> out) const override {
    const TensorPlace& place = find_place(name);
    if (place.end - place.begin != out.size())
      throw CheckpointError(fmt::format("{}: tensor '{}' has {}, but {} were requested", what_, name,
                                        counted(place.end - place.begin, "byte"), out.size()));
    data_->input->read(place.begin, out);
    data_->input->check_unchanged();
  }

  int replicas() const override { return snapshot_.manifest().replicas; }
  std::string describe() const override { return what_; }

 private:
  const TensorPlace& find_place(std::string_view name) const {
    if (const auto found = places_.find(name); found != places_.end()) return *found->second;
    throw CheckpointError(fmt::format("{} has no tensor '{}'", what_, name));
  }

  const Snapshot& snapshot_;
  std::string what_;
  const Snapshot::OpenFile* values_;
  const Snapshot::OpenFile* data_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, const TensorPlace*, std::less<>> places_;
};

const TensorInfo* Reader::find(std::string_view name) const {
  for (const TensorInfo& info : tensors())
    if (info.name == name) return &info;
  return nullptr;
}

std::vector<std::byte> Reader::bytes(std::string_view name) const {
  const TensorInfo* info = find(name);
  if (info == nullptr) throw CheckpointError(fmt::format("{} has no tensor '{}'", describe(), name));
  std::vector<std::byte> data(info->bytes());
  tensor(name, std::span(data));
  return data;
}

Snapshot::Snapshot(fs::path path, int rank) : path_(std::move(path)), rank_(rank), directory_(open_directory(path_)) {
  file_ = read_manifest(directory_, path_);
  const auto number = checkpoint_number(last_name(path_));
  if (number && *number != manifest().number)
    throw Damage(fmt::format("'{}' contains the manifest of {}", path_.string(), checkpoint_name(manifest().number)));
}

Snapshot::Snapshot(std::string what, Manifest manifest, std::map<std::string, std::unique_ptr<Input>> files)
    : path_(std::move(what)), rank_(0) {
  file_.manifest = std::move(manifest);
  for (const StateInfo& state : file_.manifest.states)
    for (const FileInfo& info : state.files) {
      const auto input = files.find(info.name);
      if (input == files.end() || !file_role(state.name, info.name))
        throw Damage(fmt::format("{} has no file '{}'", path_.string(), info.name));
      open_.emplace(info.name, OpenFile{std::move(input->second), false, {}, {}});
    }
}

const StateInfo* Snapshot::find(const std::string& state) const {
  const auto& states = manifest().states;
  const auto found = std::find_if(states.begin(), states.end(), [&](const StateInfo& s) { return s.name == state; });
  return found == states.end() ? nullptr : &*found;
}

Snapshot::OpenFile& Snapshot::open(const FileInfo& info) {
  auto found = open_.find(info.name);
  if (found == open_.end()) {
    auto input = std::make_unique<InputFile>(directory_, path_, info.name);
    if (input->size() != info.size)
      throw Damage(fmt::format("'{}' has {}, but should have {} according to the manifest", input->path().string(),
                               counted(input->size(), "byte"), info.size));
    found = open_.emplace(info.name, OpenFile{std::move(input), false, {}, {}}).first;
  }
  return found->second;
}

Snapshot::OpenFile& Snapshot::open_checked(const StateInfo& state, const FileInfo& info) {
  OpenFile& file = open(info);
  if (!file.checked) parse(state, info, file);
  return file;
}

// Reads a file's JSON values or tensor positions. If the snapshot is a directory, also checks every byte of the file.
void Snapshot::parse(const StateInfo& state, const FileInfo& info, OpenFile& file) const {
  const std::string name = file.input->path().string();
  const auto check = [&](const std::string& found) {
    if (found != info.checksum) throw Damage(fmt::format("'{}' is damaged: its checksum does not match", name));
  };
  if (file_role(state.name, info.name)->tensors) {
    if (directory_) check(file.input->checksum());
    file.places = read_safetensors_head(*file.input);
  } else {
    const std::string text = file.input->read_all();
    if (directory_) check(checksum_of(text));
    file.values = parse_json(text, name);
    if (!file.values.is_object()) throw Damage(fmt::format("'{}' is not a JSON object", name));
  }
  file.checked = true;
}

void Snapshot::check_sizes() {
  for (const StateInfo& state : manifest().states)
    for (const FileInfo& info : state.files) {
      open(info);
      drop_part_of_other(state, info);
    }
}

void Snapshot::drop_part_of_other(const StateInfo& state, const FileInfo& info) {
  const auto part_of = file_role(state.name, info.name)->rank;
  if (part_of && *part_of != rank_) open_.erase(info.name);
}

void Snapshot::check_contents(const std::optional<std::string>& only) {
  for (const StateInfo& state : manifest().states)
    for (const FileInfo& info : state.files) {
      if (only && *only != state.name) continue;
      open_checked(state, info);
      drop_part_of_other(state, info);
    }
}

std::vector<std::string> Snapshot::find_damage() {
  std::vector<std::string> damages;
  for (const StateInfo& state : manifest().states) {
    for (const FileInfo& info : state.files) {
      try {
        open_checked(state, info);
      } catch (const Damage& damage) {
        damages.emplace_back(damage.what());
      }
    }
    close(state.name);
  }
  return damages;
}

std::unique_ptr<Reader> Snapshot::reader(const std::string& name, std::optional<int> rank) {
  const StateInfo* state = find(name);
  if (state == nullptr) return nullptr;
  const OpenFile* values = nullptr;
  const OpenFile* data = nullptr;
  for (const FileInfo& info : state->files) {
    const FileRole role = *file_role(name, info.name);
    if (role.rank == rank) (role.tensors ? data : values) = &open_checked(*state, info);
  }
  if (rank && values == nullptr && data == nullptr) return nullptr;
  const std::string part = rank ? fmt::format("rank {}'s part of ", *rank) : "";
  const std::string where = directory_ ? fmt::format("in '{}'", path_.string()) : "of " + path_.string();
  return std::make_unique<SnapshotReader>(*this, fmt::format("{}state '{}' {}", part, name, where), values, data);
}

void Snapshot::close(const std::string& name) {
  if (const StateInfo* state = find(name))
    for (const FileInfo& info : state->files) open_.erase(info.name);
}

}  // namespace adaptdl::checkpoint
