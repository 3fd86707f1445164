#include "local/record/run_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "adaptdl/error.h"
#include "base/private_files.h"
#include "local/base/checkpoint_watch.h"
#include "local/base/directory_lock.h"
#include "local/record/run_directory.h"

namespace adaptdl::sched {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

json read_json(const fs::path& file) {
  std::ifstream in(file);
  return in ? json::parse(in, nullptr, false) : json();
}

bool holds_something(const fs::path& directory) {
  std::error_code error;
  return fs::is_directory(directory, error) && !fs::is_empty(directory, error);
}

// Returns whether the run is a trial, named STUDY-N, of a study that exists.
bool is_of_trial(const fs::path& studies, const RunEntry& run) {
  const std::string& name = run.status.name;
  const std::size_t dash = name.rfind('-');
  if (dash == std::string::npos) return false;
  const fs::path trial = studies / name.substr(0, dash) / "trials" / name.substr(dash + 1);
  std::error_code ignored;
  return fs::equivalent(fs::path(run.status.checkpoints).parent_path(), trial, ignored);
}

// If the launcher was killed, its record still contains the last state that the launcher wrote.
void mark_lost(RunEntry& run) {
  run.status.state = "lost";
  run.status.why = "its launcher was killed";
  struct stat written {};
  if (::stat((run.directory / "run.json").c_str(), &written) == 0)
    run.status.ended = std::chrono::system_clock::from_time_t(written.st_mtim.tv_sec);
  if (run.status.checkpoints.empty()) {
    run.status.why += ", and nothing was saved";
  } else if (!CheckpointWatch(run.status.checkpoints).newest()) {
    run.status.why += " before a checkpoint was saved";
  } else {
    run.status.why += "; to continue: " + run.status.resume;
  }
}

std::optional<RunEntry> read_entry(const fs::path& directory) {
  RunEntry run{.directory = directory, .status = {}, .alive = is_locked(directory), .socket = {}};
  // The record is read after the lock was checked, so that it contains everything that the launcher wrote before the
  // launcher ended.
  const json record = read_json(directory / "run.json");
  if (!record.is_object()) return std::nullopt;
  run.status = run_status(record);
  run.status.name = directory.filename().string();
  if (record.contains("socket") && record["socket"].is_string()) run.socket = record["socket"].get<std::string>();
  if (!run.alive && !has_ended(run.status)) mark_lost(run);
  return run;
}

// Removes the directory of a record. If it contains checkpoints and `keep_checkpoints` is true, removes everything
// else.
std::error_code remove_directory(const fs::path& directory, bool keep_checkpoints) {
  std::error_code error;
  const fs::path checkpoints = directory / "checkpoints";
  if (!keep_checkpoints || !holds_something(checkpoints)) {
    fs::remove_all(directory, error);
    return error;
  }
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (at->path() != checkpoints && fs::remove_all(at->path(), error) == static_cast<std::uintmax_t>(-1)) break;
  }
  return error;
}

}  // namespace

RunRecord RunRecord::unnamed(const fs::path& runs, const std::string& program) {
  fs::path directory = make_run_directory(runs, program);
  Fd file;
  if (lock_directory(directory, file) != Locking::kLocked)
    throw Error(fmt::format("cannot lock file '{}': {}", (directory / "lock").string(), std::strerror(errno)));
  return {std::move(directory), std::move(file)};
}

RunRecord RunRecord::named(const fs::path& runs, const std::string& name) {
  const fs::path directory = runs / name;
  constexpr int kTries = 100;  // one is enough unless another process removes the record at this moment
  for (int i = 0; i < kTries; ++i) {
    prepare_runs_directory(runs);
    std::error_code error = create_private_directories(directory);
    if (error)
      throw Error(fmt::format("cannot create directory '{}' for the run: {}", directory.string(), error.message()));
    Fd file;
    switch (lock_directory(directory, file)) {
      case Locking::kLocked:
        error = restrict_tree_to_user(directory);
        if (!error) return {directory, std::move(file)};
        throw Error(
            fmt::format("cannot make directory '{}' inaccessible to other users: {}; choose another name for the run",
                        directory.string(), error.message()));
      case Locking::kHeld:
        throw UsageError(
            fmt::format("a run named '{}' is already running; choose another name, or end it with `adaptdl delete {}`",
                        name, name));
      case Locking::kFailed:
        throw Error(fmt::format("cannot lock file '{}': {}", (directory / "lock").string(), std::strerror(errno)));
      case Locking::kVanished:
        break;
    }
  }
  throw Error(
      fmt::format("cannot create directory '{}' for the run: another process keeps removing it", directory.string()));
}

std::string RunRecord::socket_name() const {
  return fmt::format("run-{:016x}", XXH3_64bits(directory_.c_str(), directory_.native().size()));
}

bool RunRecord::taken_over() const {
  std::error_code ignored;
  return fs::exists(directory_ / "run.json", ignored);
}

bool RunRecord::write(const RunStatus& status, const std::string& socket) const noexcept {
  try {
    json record = to_json(status);
    record["socket"] = socket;
    const fs::path next = directory_ / "run.json.new";
    if (create_private_file(next)) return false;
    std::ofstream file(next, std::ios::trunc);
    file << record.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
    file.close();
    if (!file) return false;
    fs::rename(next, directory_ / "run.json");
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void RunRecord::remove() noexcept {
  try {
    remove_directory(directory_, true);
  } catch (const std::exception&) {
    // A record that cannot be removed is pruned later.
  }
}

std::vector<RunEntry> list_runs(const fs::path& runs) {
  std::vector<RunEntry> entries;
  std::error_code error;
  for (fs::directory_iterator at(runs, error), end; !error && at != end; at.increment(error)) {
    if (auto entry = read_entry(at->path())) entries.push_back(std::move(*entry));
  }
  std::ranges::sort(entries, {}, [](const RunEntry& run) { return std::pair(run.status.started, run.status.name); });
  return entries;
}

std::optional<RunEntry> read_run(const fs::path& runs, const std::string& name) { return read_entry(runs / name); }

RunEntry find_run(const fs::path& runs, const std::string& name) {
  const std::vector<RunEntry> all = list_runs(runs);
  std::vector<const RunEntry*> matches;
  for (const RunEntry& run : all) {
    if (run.status.name == name) return run;
    if (run.status.name.starts_with(name)) matches.push_back(&run);
  }
  if (matches.size() == 1) return *matches.front();
  constexpr std::size_t kMaxNames = 10;  // only the newest, since the error is one line
  std::vector<std::string> names;
  for (auto run = all.rbegin(); run != all.rend() && names.size() < kMaxNames; ++run) {
    if (matches.empty() || run->status.name.starts_with(name)) names.push_back(run->status.name);
  }
  if (matches.size() > 1)
    throw UsageError(fmt::format("run name '{}' is ambiguous: it matches {}", name, fmt::join(names, ", ")));
  throw UsageError(all.empty() ? fmt::format("run '{}' not found; there are no runs", name)
                               : fmt::format("run '{}' not found; existing runs: {}{}", name, fmt::join(names, ", "),
                                             all.size() > kMaxNames ? ", ... (see `adaptdl ls --all`)" : ""));
}

bool is_alive(const RunEntry& run) { return is_locked(run.directory); }

void remove_run(const RunEntry& run, bool keep_checkpoints) {
  Fd file;
  const Locking locking = lock_directory(run.directory, file);
  if (locking == Locking::kHeld) throw Error(fmt::format("run '{}' is still running", run.status.name));
  std::error_code error;
  if (!run.socket.empty()) fs::remove(run.socket, error);
  error = remove_directory(run.directory, keep_checkpoints);
  if (error) throw Error(fmt::format("cannot remove directory '{}': {}", run.directory.string(), error.message()));
}

void prune_runs(const fs::path& runs, std::size_t keep) noexcept {
  try {
    std::vector<RunEntry> ended = list_runs(runs);
    const fs::path studies = studies_directory(runs);
    std::erase_if(ended, [&](const RunEntry& run) { return run.alive || is_of_trial(studies, run); });
    std::ranges::sort(ended, std::ranges::greater(), [](const RunEntry& run) { return run.status.ended; });
    for (std::size_t i = keep; i < ended.size(); ++i) {
      if (!holds_something(ended[i].directory / "checkpoints")) remove_run(ended[i], false);
    }
  } catch (const std::exception&) {
    // The next run tries again.
  }
}

}  // namespace adaptdl::sched
