#include <fmt/format.h>
#include <time.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "adaptdl/checkpoint.h"
#include "command/base/command.h"
#include "command/run/checkpoint_save.h"
#include "terminal/dump_json.h"
#include "terminal/format.h"
#include "terminal/print.h"
#include "terminal/table.h"

namespace adaptdl::cli {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointError;
using checkpoint::Entry;
using nlohmann::json;

struct CheckpointOptions {
  std::string directory;
  bool json = false;
  std::string output;
  std::string state;
  bool model = false;
  int keep = 2;
  bool dry_run = false;
};

bool is_checkpoint(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "manifest.json", ignored) ||
         fs::path(path / "").parent_path().filename().string().starts_with("checkpoint-");
}

// Returns the checkpoint at the path, or all checkpoints in the directory, newest first.
std::vector<Entry> named_checkpoints(const fs::path& path) {
  if (is_checkpoint(path)) return {checkpoint::inspect(path)};
  return checkpoint::list(path);
}

// Returns the checkpoint at the path, or the newest one in the directory. Throws CheckpointError if there is none.
Entry named_checkpoint(const fs::path& path) {
  std::vector<Entry> entries = named_checkpoints(path);
  if (entries.empty()) throw CheckpointError(fmt::format("no checkpoint in '{}'", path.string()));
  return std::move(entries.front());
}

std::optional<std::chrono::seconds> age(const Entry& entry) {
  std::tm created{};
  if (!entry.manifest || ::strptime(entry.manifest->created.c_str(), "%Y-%m-%dT%H:%M:%SZ", &created) == nullptr)
    return {};
  return std::chrono::seconds(::time(nullptr) - ::timegm(&created));
}

std::uint64_t size_of(const checkpoint::StateInfo& state) {
  std::uint64_t size = 0;
  for (const auto& file : state.files) size += file.size;
  return size;
}

std::uint64_t size_of(const checkpoint::Manifest& manifest) {
  std::uint64_t size = 0;
  for (const auto& state : manifest.states) size += size_of(state);
  return size;
}

// Returns text such as "epoch 3, loss 0.125".
std::string saved_progress_text(const json& progress) {
  std::string text;
  for (const auto& [key, value] : progress.items()) {
    if (value.is_structured() || value.is_null()) continue;
    text += text.empty() ? "" : ", ";
    text += key + ' ';
    text += value.is_number_float() ? fmt::format("{:.4g}", value.get<double>())
            : value.is_string()     ? value.get<std::string>()
                                    : dump_json(value, -1);
  }
  return text.empty() ? "-" : text;
}

// The status is based only on manifests and file sizes; `verify` reads every byte.
std::string status_of(const Entry& entry) {
  return entry.problem.empty() ? "sizes match" : "damaged: " + entry.problem;
}

json entry_json(const Entry& entry) {
  json out{{"path", entry.path.string()}, {"number", entry.number}, {"complete", entry.problem.empty()}};
  if (!entry.problem.empty()) out["problem"] = entry.problem;
  if (!entry.manifest) return out;
  const checkpoint::Manifest& manifest = *entry.manifest;
  out["format"] = manifest.format;
  out["created"] = manifest.created;
  out["age_seconds"] = age(entry) ? json(age(entry)->count()) : json();
  out["version"] = manifest.version;
  out["job"] = manifest.job;
  out["replicas"] = manifest.replicas;
  out["progress"] = manifest.progress;
  out["size"] = size_of(manifest);
  out["states"] = json::array();
  for (const auto& state : manifest.states) {
    json files = json::array();
    for (const auto& file : state.files)
      files.push_back({{"name", file.name}, {"size", file.size}, {"checksum", file.checksum}});
    out["states"].push_back({{"name", state.name}, {"size", size_of(state)}, {"files", std::move(files)}});
  }
  return out;
}

void print_json(const json& value) { print_text(dump_json(value) + '\n'); }

void ls(const CheckpointOptions& options) {
  const std::vector<Entry> entries = named_checkpoints(options.directory);
  if (options.json) {
    json all = json::array();
    for (const Entry& entry : entries) all.push_back(entry_json(entry));
    return print_json(all);
  }
  if (entries.empty()) return print_out("no checkpoint in '{}'\n", options.directory);
  Table table({{"NUMBER", Table::Align::kRight},
               {"AGE", Table::Align::kRight},
               {"PROGRESS"},
               {"STATES", Table::Align::kRight},
               {"REPLICAS", Table::Align::kRight},
               {"SIZE", Table::Align::kRight},
               {"STATUS"}});
  for (const Entry& entry : entries) {
    const std::string number = fmt::format("{}", entry.number);
    const std::string status = status_of(entry);
    if (!entry.manifest) {
      table.add_row({number, "-", "-", "-", "-", "-", status});
      continue;
    }
    const auto& manifest = *entry.manifest;
    table.add_row({number, age(entry) ? format_duration(*age(entry)) : "-", saved_progress_text(manifest.progress),
                   fmt::format("{}", manifest.states.size()), fmt::format("{}", manifest.replicas),
                   format_bytes(size_of(manifest)), status});
  }
  table.print();
}

void show(const CheckpointOptions& options) {
  const Entry entry = named_checkpoint(options.directory);
  if (options.json) return print_json(entry_json(entry));
  if (!entry.manifest) throw CheckpointError(entry.problem);
  const checkpoint::Manifest& manifest = *entry.manifest;
  const std::string ago = age(entry) ? fmt::format(" ({} ago)", format_duration(*age(entry))) : "";
  print_out("{}\n", entry.path.string());
  print_out("  saved     {}{} by adaptdl {}\n", manifest.created, ago, manifest.version);
  if (!manifest.job.empty()) print_out("  job       {}\n", manifest.job);
  print_out("  replicas  {}\n", manifest.replicas);
  print_out("  progress  {}\n", saved_progress_text(manifest.progress));
  print_out("  size      {}\n", format_bytes(size_of(manifest)));
  print_out("  status    {}\n\n", status_of(entry));
  Table table({{"STATE"}, {"FILE"}, {"SIZE", Table::Align::kRight}, {"CHECKSUM"}});
  for (const auto& state : manifest.states) {
    if (state.files.empty()) table.add_row({state.name, "-", "-", "-"});
    for (const auto& file : state.files) table.add_row({state.name, file.name, format_bytes(file.size), file.checksum});
  }
  table.print();
}

bool verify(const CheckpointOptions& options) {
  const std::vector<Entry> entries = named_checkpoints(options.directory);
  if (entries.empty()) throw CheckpointError(fmt::format("no checkpoint in '{}'", options.directory));
  bool whole = true;
  json all = json::array();
  for (const Entry& entry : entries) {
    // Only a directory can be verified; if the path is a file, the entry already describes the problem.
    const bool readable = fs::is_directory(entry.path);
    const auto problems = readable ? checkpoint::verify(entry.path) : std::vector{entry.problem};
    whole = whole && problems.empty();
    all.push_back({{"path", entry.path.string()}, {"whole", problems.empty()}, {"problems", problems}});
    if (options.json) continue;
    print_out("{}: {}\n", entry.path.string(), problems.empty() ? "whole" : "damaged");
    for (const std::string& problem : problems) print_out("  {}\n", problem);
  }
  if (options.json) print_json(all);
  return whole;
}

void export_tensors(const CheckpointOptions& options) {
  const Entry entry = named_checkpoint(options.directory);
  checkpoint::export_tensors(entry.path, options.output,
                             options.state.empty() ? std::nullopt : std::optional(options.state),
                             options.model ? "model/" : "");
  const std::uint64_t size = fs::file_size(options.output);
  if (options.json) return print_json({{"checkpoint", entry.path.string()}, {"file", options.output}, {"size", size}});
  print_out("wrote {} from {} ({})\n", options.output, entry.path.string(), format_bytes(size));
}

void prune_checkpoints(const CheckpointOptions& options) {
  if (is_checkpoint(options.directory))
    throw UsageError(fmt::format("checkpoint prune: '{}' is a checkpoint; expected the directory that contains it",
                                 options.directory));
  const auto deleted = checkpoint::prune(options.directory, options.keep, options.dry_run);
  if (options.json) {
    json paths = json::array();
    for (const fs::path& path : deleted) paths.push_back(path.string());
    return print_json({{"deleted", std::move(paths)}, {"dry_run", options.dry_run}});
  }
  for (const fs::path& path : deleted)
    print_out("{} {}\n", options.dry_run ? "would delete" : "deleted", path.string());
  if (deleted.empty()) print_out("nothing to delete\n");
}

// Adds a verb with the options that all verbs share: DIR and --json.
CLI::App* add_checkpoint_verb(CLI::App& app, const char* name, const char* summary, const char* directory,
                              CheckpointOptions& options) {
  CLI::App* verb = app.add_subcommand(name, summary);
  verb->add_option("dir", options.directory, directory)->required()->type_name("DIR");
  verb->add_flag("--json", options.json, "Print JSON");
  return verb;
}

}  // namespace

void add_checkpoint(CLI::App& app, int& exit_code) {
  constexpr const char* kMany = "Checkpoint directory, or one checkpoint in it";
  constexpr const char* kNewest = "Checkpoint, or a checkpoint directory, whose newest checkpoint is used";
  auto options = std::make_shared<CheckpointOptions>();

  CLI::App* verb = add_checkpoint_verb(app, "ls", "List checkpoints, newest first", kMany, *options);
  verb->footer("STATUS is based on manifests and file sizes only; `adaptdl checkpoint verify` reads every byte.");
  verb->callback([options] { ls(*options); });

  verb = add_checkpoint_verb(app, "show", "Show the contents of a checkpoint", kNewest, *options);
  verb->callback([options] { show(*options); });

  verb = add_checkpoint_verb(app, "verify", "Read every byte and report damage", kMany, *options);
  verb->footer("The exit status is 1 if anything is damaged.");
  verb->callback([options, &exit_code] { exit_code = verify(*options) ? 0 : 1; });

  verb = add_checkpoint_verb(app, "export", "Write a checkpoint's tensors to one safetensors file", kNewest, *options);
  verb->add_option("-o,--output", options->output, "File to write")->required()->type_name("FILE");
  verb->add_option("--state", options->state,
                   "Export only this state's tensors, under their own names (default: all, as STATE/TENSOR)")
      ->type_name("NAME");
  verb->add_flag("--model", options->model, "Export only the model's parameters and buffers, under their own names");
  verb->callback([options] { export_tensors(*options); });

  verb = add_checkpoint_verb(
      app, "prune", "Delete the remains of interrupted saves, and all checkpoints but the newest undamaged ones",
      "Checkpoint directory", *options);
  verb->add_option("--keep", options->keep, "Number of checkpoints to keep, at least 1 (default: 2)")->type_name("N");
  verb->add_flag("--dry-run", options->dry_run, "Print what would be deleted, but delete nothing");
  verb->callback([options] { prune_checkpoints(*options); });
  add_checkpoint_save(app);
}

}  // namespace adaptdl::cli
