#include <fmt/core.h>
#include <fmt/ranges.h>

#include <exception>
#include <memory>
#include <system_error>

#include "adaptdl/collective.h"
#include "adaptdl/env.h"
#include "adaptdl/log.h"
#include "checkpoint/draft.h"
#include "checkpoint/group.h"
#include "checkpoint/load.h"
#include "checkpoint/manifest.h"
#include "checkpoint/prune.h"
#include "checkpoint/state_writer.h"
#include "checkpoint/states.h"
#include "checkpoint/store.h"

namespace adaptdl::checkpoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kAction = "no checkpoint was saved";

// The last checkpoint that this process saved.
struct Saved {
  fs::path directory;
  std::uint64_t number = 0;
};
std::optional<Saved>& saved() {
  static std::optional<Saved> value;
  return value;
}

class StringSink : public Sink {
 public:
  void write(std::span<const std::byte> data) override {
    text.append(reinterpret_cast<const char*>(data.data()), data.size());
  }
  std::string text;
};

std::string named(const std::string& state) { return fmt::format("state '{}'", state); }

// Returns the files for the contents of `writer`, to which these drafts refer.
std::vector<FileDraft> drafts_of(const StateWriter& writer, const std::string& state, std::optional<int> rank = {}) {
  std::vector<FileDraft> files;
  if (writer.has_json()) {
    const auto text = std::make_shared<const std::string>(writer.json_text());
    files.push_back({file_name(state, {false, rank}), text->size(), [text](Sink& sink) { sink.write(*text); }});
  }
  if (writer.has_tensors())
    files.push_back({file_name(state, {true, rank}), writer.tensors_size(),
                     [&writer](Sink& sink) { writer.stream_tensors(sink); }});
  return files;
}

// Returns the files of the part of `state` that `rank` saves, with their contents in memory.
json part_files(const State& state, int rank) {
  StateWriter writer(fmt::format("rank {}'s part of state '{}'", rank, state.name()));
  state.save_part(writer);
  json files = json::object();
  for (const FileDraft& file : drafts_of(writer, state.name(), rank)) {
    StringSink sink;
    file.write(sink);
    files[file.name] = json::binary(std::vector<std::uint8_t>(sink.text.begin(), sink.text.end()));
  }
  return files;
}

// All replicas must iterate over the same states in the same order, or their collective calls would not match.
void check_same_states(const Group& group, bool have_path) {
  json own = json::array();
  for (const auto& [name, state] : states()) own.push_back(name);
  const auto all = group.allgather(json{{"path", have_path}, {"states", own}}.dump(), "states of a checkpoint");
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const json first = json::parse(all[0]), other = json::parse(all[rank]);
    if (first["path"] != other["path"])
      throw CheckpointError(
          fmt::format("{}: ADAPTDL_CHECKPOINT_PATH is set on rank 0 or rank {}, but not on both", kAction, rank));
    throw CheckpointError(fmt::format("{}: rank 0 has the states {}, but rank {} has {}", kAction,
                                      first["states"].dump(), rank, other["states"].dump()));
  }
}

void sync_all(const Group& group) {
  for (const auto& [name, state] : states()) {
    // All replicas notice the loss of a replica, so they need not agree on it.
    std::exception_ptr lost;
    const auto error = error_of(named(name), [&, s = state] {
      try {
        s->sync();
      } catch (const collective::CollectiveError&) {
        lost = std::current_exception();
      }
    });
    if (lost) std::rethrow_exception(lost);
    // Without agreement after each state, a failed replica would continue with the next state's collective calls.
    group.agree_on_success(kAction, error);
  }
}

// Returns the parts of all ranks, by rank, each as {state: {file: content}}.
std::vector<json> gather_parts(const Group& group) {
  json own = json::object();
  std::optional<std::string> error;
  for (const auto& [name, state] : states()) {
    if (!state->has_parts()) continue;
    const auto failed = error_of(named(name), [&, s = state, &n = name] { own[n] = part_files(*s, group.rank); });
    if (failed && !error) error = failed;
  }
  group.agree_on_success(kAction, error);
  std::string content;
  json::to_cbor(own, content);
  std::vector<json> parts;
  for (const std::string& part : group.allgather(std::move(content), "parts of a checkpoint"))
    parts.push_back(json::from_cbor(part));
  return parts;
}

std::vector<FileDraft> part_drafts(const std::vector<json>& parts, const std::string& state) {
  std::vector<FileDraft> files;
  for (const json& part : parts) {
    if (!part.contains(state)) continue;
    for (const auto& [name, data] : part[state].items()) {
      const auto& bytes = data.get_binary();
      const auto text = std::make_shared<const std::string>(bytes.begin(), bytes.end());
      files.push_back({name, text->size(), [text](Sink& sink) { sink.write(*text); }});
    }
  }
  return files;
}

void prepare_directory(const fs::path& directory) {
  std::error_code error;
  if (fs::is_directory(directory, error)) return;
  if (fs::exists(directory, error)) throw CheckpointError(fmt::format("'{}' is not a directory", directory.string()));
  const bool seen = (saved() && saved()->directory == directory) || loaded_from(directory);
  if (seen) {
    if (!fs::is_directory(fs::absolute(directory).parent_path(), error))
      throw CheckpointError(fmt::format("'{}' and its parent directory have disappeared; is the volume still mounted?",
                                        directory.string()));
    log::warn(fmt::format("'{}' and the checkpoints in it have disappeared; creating it again", directory.string()));
  }
  make_directories(directory);
}

// Jobs that share a directory would mistake each other's checkpoints for their own.
void warn_of_others(const fs::path& directory) {
  if (!saved() || saved()->directory != directory) return;
  const Scan present = scan(directory);
  if (!present.checkpoints.empty() && present.checkpoints.front().number > saved()->number)
    log::warn(fmt::format("'{}' was not written by this job; another job saves to the same directory",
                          present.checkpoints.front().path.string()));
}

Draft make_draft(const Group& group, const std::vector<json>& parts,
                 std::vector<std::unique_ptr<StateWriter>>& writers) {
  Draft draft;
  draft.manifest.replicas = group.size;
  draft.manifest.job = env::job_id().value_or("");
  for (const auto& [name, state] : states()) {
    StateDraft files{name, draft_state(*state, writers)};
    const auto step = [&, s = state, &n = name] {
      const json progress = s->progress();
      if (!progress.is_object())
        throw CheckpointError(fmt::format("{}: progress() must return a JSON object", named(n)));
      draft.manifest.progress.update(progress);
    };
    if (const auto error = error_of(named(name), step)) throw CheckpointError(*error);
    for (FileDraft& file : part_drafts(parts, name)) files.files.push_back(std::move(file));
    draft.states.push_back(std::move(files));
  }
  return draft;
}

// Writes the checkpoint. If the disk has no space for it, deletes older checkpoints, but never the newest whole one.
Found write_or_make_room(const fs::path& directory, const Draft& draft) {
  try {
    return write_checkpoint(directory, draft);
  } catch (const NoSpace& error) {
    if (!make_room(directory, size_on_disk(draft))) throw;
    log::warn(fmt::format("{}; older checkpoints were deleted to make room", error.what()));
  }
  return write_checkpoint(directory, draft);
}

// Called on rank 0 only.
fs::path write_all(const fs::path& directory, const Group& group, const std::vector<json>& parts) {
  const int keep = env::checkpoint_keep();
  std::vector<std::unique_ptr<StateWriter>> writers;
  const Draft draft = make_draft(group, parts, writers);
  prepare_directory(directory);
  warn_of_others(directory);
  const Found committed = write_or_make_room(directory, draft);
  saved() = Saved{directory, committed.number};
  prune_after_save(directory, committed, keep);
  return committed.path;
}

}  // namespace

std::vector<FileDraft> draft_state(const State& state, std::vector<std::unique_ptr<StateWriter>>& writers) {
  const std::string& name = state.name();
  writers.push_back(std::make_unique<StateWriter>(named(name)));
  if (const auto error = error_of(named(name), [&] { state.save(*writers.back()); })) throw CheckpointError(*error);
  return drafts_of(*writers.back(), name);
}

std::optional<fs::path> save_all_states() {
  const Group group = Group::for_saving();
  const auto directory = configured_directory();
  check_same_states(group, directory.has_value());
  if (!directory) return {};
  sync_all(group);
  const auto parts = gather_parts(group);
  json outcome;
  if (group.rank == 0) {
    const auto error = error_of("", [&] { outcome["name"] = write_all(*directory, group, parts).filename().string(); });
    if (error) outcome = {{"error", fmt::format("{}: {}{}", kAction, group.prefix(0), *error)}};
  }
  outcome = json::parse(group.broadcast(outcome.dump(-1, ' ', false, json::error_handler_t::replace)));
  if (outcome.contains("error")) throw CheckpointError(outcome["error"].get<std::string>());
  note_saved();
  return *directory / outcome["name"].get<std::string>();
}

void sync_all_states() { sync_all(Group::for_saving()); }

std::vector<fs::path> save_state(State& state, const fs::path& directory, bool sync) {
  const int rank = Group::for_loading().rank;
  if (sync) state.sync();
  StateWriter own(named(state.name()));
  StateWriter part(fmt::format("rank {}'s part of state '{}'", rank, state.name()));
  std::vector<FileDraft> files;
  if (rank == 0) {
    state.save(own);
    files = drafts_of(own, state.name());
  }
  if (state.has_parts()) {
    state.save_part(part);
    for (FileDraft& file : drafts_of(part, state.name(), rank)) files.push_back(std::move(file));
  }
  make_directories(directory);
  std::vector<fs::path> paths;
  for (const FileDraft& file : files) {
    OutputFile output(directory / file.name, OutputFile::Existing::kReplace);
    file.write(output);
    output.finish();
    paths.push_back(directory / file.name);
  }
  return paths;
}

}  // namespace adaptdl::checkpoint
