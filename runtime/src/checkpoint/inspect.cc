#include <fmt/core.h>

#include <set>
#include <system_error>

#include "adaptdl/log.h"
#include "checkpoint/manifest.h"
#include "checkpoint/newest.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/store.h"

namespace adaptdl::checkpoint {

namespace fs = std::filesystem;

namespace {

// A tensor to export: the reader of its state, and its name in the state.
struct Exported {
  const Reader* reader;
  std::string name;
};

void write_tensors(Sink& sink, const std::vector<TensorInfo>& infos, const std::vector<Exported>& sources) {
  const std::vector<std::size_t> order = layout_order(infos);
  std::vector<TensorInfo> ordered;
  for (const std::size_t i : order) ordered.push_back(infos[i]);
  sink.write(safetensors_head(ordered));
  for (const std::size_t i : order)
    sources[i].reader->tensor(sources[i].name,
                              [&](std::size_t, std::span<const std::byte> chunk) { sink.write(chunk); });
}

// Writes to a temporary file next to `file`, then renames it to `file`.
void commit_file(const fs::path& file, const std::function<void(Sink&)>& write) {
  const fs::path parent = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const fs::path temporary = parent / fmt::format(".{}.{}", file.filename().string(), random_suffix());
  // An exported file is meant to be shared, so the umask decides its permissions.
  OutputFile output(temporary, OutputFile::Existing::kFail, 0666);
  write(output);
  output.finish();
  std::error_code error;
  fs::rename(temporary, file, error);
  if (error) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw CheckpointError(errno_text(fmt::format("cannot write '{}'", file.string()), error.value()));
  }
  sync_directory(parent);
}

void require_directory(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    throw CheckpointError(fmt::format("'{}' is not a directory{}", path.string(), error ? ": " + error.message() : ""));
}

}  // namespace

Entry inspect(const fs::path& checkpoint) {
  require_directory(checkpoint);
  Entry entry{0, checkpoint, {}, {}};
  try {
    Snapshot snapshot(checkpoint);
    entry.manifest = snapshot.manifest();
    entry.number = entry.manifest->number;
    snapshot.check_sizes();
  } catch (const CheckpointError& error) {
    entry.problem = error.what();
  }
  return entry;
}

std::vector<Entry> list(const fs::path& directory) {
  const Scan found = scan(directory);
  for (const std::string& name : found.ignored)
    log::warn(fmt::format("ignoring '{}': 'checkpoint-' is not followed by a number", (directory / name).string()));
  std::vector<Entry> entries;
  for (const Found& candidate : found.checkpoints) {
    Entry entry{candidate.number, candidate.path, {}, {}};
    try {
      entry = inspect(candidate.path);
    } catch (const CheckpointError& error) {
      entry.problem = error.what();
    }
    entry.number = candidate.number;
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<std::string> verify(const fs::path& checkpoint) {
  require_directory(checkpoint);
  try {
    return Snapshot(checkpoint).find_damage();
  } catch (const Damage& damage) {
    return {damage.what()};
  } catch (const NewerFormat& newer) {
    return {newer.what()};
  }
}

std::optional<Entry> newest_whole(const fs::path& directory) {
  const Newest newest = find_newest(directory, false);
  if (!newest.snapshot) return {};
  const fs::path& path = newest.snapshot->path();
  return Entry{checkpoint_number(path.filename().string()).value(), path, newest.snapshot->manifest(), {}};
}

void export_tensors(const fs::path& checkpoint, const fs::path& file, const std::optional<std::string>& only,
                    const std::string& prefix) {
  require_directory(checkpoint);
  Snapshot snapshot(checkpoint);
  if (only && snapshot.find(*only) == nullptr)
    throw CheckpointError(fmt::format("'{}' has no state '{}'", checkpoint.string(), *only));
  snapshot.check_contents(only);
  std::vector<std::unique_ptr<Reader>> readers;
  std::vector<TensorInfo> infos;
  std::vector<Exported> sources;
  std::set<std::string> names;
  for (const StateInfo& state : snapshot.manifest().states) {
    if (only && *only != state.name) continue;
    readers.push_back(snapshot.reader(state.name));
    for (TensorInfo info : readers.back()->tensors()) {
      if (!info.name.starts_with(prefix)) continue;
      sources.push_back({readers.back().get(), info.name});
      info.name.erase(0, prefix.size());
      if (!only && prefix.empty()) info.name = fmt::format("{}/{}", state.name, info.name);
      if (!names.insert(info.name).second)
        throw CheckpointError(
            fmt::format("two tensors of '{}' would be named '{}'; export one state at a time (--state)",
                        checkpoint.string(), info.name));
      infos.push_back(std::move(info));
    }
  }
  if (infos.empty())
    throw CheckpointError(fmt::format("{}'{}' has no tensors to export",
                                      only ? fmt::format("state '{}' of ", *only) : "", checkpoint.string()));
  commit_file(file, [&](Sink& sink) { write_tensors(sink, infos, sources); });
}

}  // namespace adaptdl::checkpoint
