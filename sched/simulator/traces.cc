#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <numeric>

#include "adaptdl/error.h"
#include "simulator/application.h"
#include "simulator/application_settings.h"
#include "simulator/csv.h"

namespace adaptdl::sched {
namespace {

namespace fs = std::filesystem;

// Larger numbers are rejected as mistakes.
constexpr double kMaxStepTime = 1e6;  // seconds
constexpr double kMaxSteps = 1e15;
constexpr std::string_view kValidationPrefix = "validation-";

StepTime step_time(const Csv& csv, std::size_t row) {
  const StepTime time{csv.number(row, "step_time", 0, kMaxStepTime), csv.number(row, "sync_time")};
  if (time.step <= 0) csv.fail(row, "step_time", "step_time must be greater than 0 seconds");
  if (time.sync >= time.step) {
    csv.fail(row, "sync_time", "sync_time must be less than step_time, which includes it");
  }
  return time;
}

std::vector<int> placement(const Csv& csv, std::size_t row) {
  const std::string& text = csv.text(row, "placement");
  if (text.empty() || text.find_first_not_of("123456789") != std::string::npos) {
    csv.fail(
        row, "placement",
        fmt::format("invalid placement '{}': expected the number of replicas on each node, as one digit from 1 to 9",
                    text));
  }
  std::vector<int> replicas;
  for (const char digit : text) replicas.push_back(digit - '0');
  return replicas;
}

std::vector<StepTimes::PlacementRow> load_placements(const fs::path& file) {
  const Csv csv(file, {"placement", "local_bsz", "step_time", "sync_time"});
  std::vector<StepTimes::PlacementRow> rows;
  for (std::size_t row = 0; row < csv.rows(); ++row) {
    rows.push_back({placement(csv, row), static_cast<double>(csv.count(row, "local_bsz")), step_time(csv, row)});
  }
  return rows;
}

std::vector<StepTimes::ScalabilityRow> load_scalability(const fs::path& file) {
  if (!fs::exists(file)) return {};
  const Csv csv(file, {"num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"});
  std::vector<StepTimes::ScalabilityRow> rows;
  for (std::size_t row = 0; row < csv.rows(); ++row) {
    const int nodes = csv.count(row, "num_nodes"), replicas = csv.count(row, "num_replicas");
    if (replicas < nodes) {
      csv.fail(row, "num_replicas", fmt::format("fewer replicas ({}) than nodes ({})", replicas, nodes));
    }
    rows.push_back({nodes, replicas, static_cast<double>(csv.count(row, "local_bsz")), step_time(csv, row)});
  }
  return rows;
}

std::vector<Epoch> load_validation(const fs::path& file) {
  const Csv csv(file, {"progress", "iteration", "metric", "grad_sqr", "grad_var"});
  std::vector<Epoch> epochs;
  for (std::size_t row = 0; row < csv.rows(); ++row) {
    const Epoch epoch{csv.number(row, "progress", 0, kMaxSteps),
                      csv.number(row, "iteration", 0, kMaxSteps),
                      csv.number(row, "metric", -1e100),
                      {csv.number(row, "grad_sqr"), csv.number(row, "grad_var")}};
    const Epoch& last = epochs.empty() ? Epoch{} : epochs.back();
    for (const auto& [column, value, before] : {std::tuple("progress", epoch.progress, last.progress),
                                                std::tuple("iteration", epoch.iteration, last.iteration)}) {
      if (value > before) continue;
      csv.fail(row, column,
               fmt::format("{} must be greater than {}, got {}; expected one row per epoch, in order", column, before,
                           csv.text(row, column)));
    }
    epochs.push_back(epoch);
  }
  return epochs;
}

// Returns the batch size in the name of a validation file.
std::size_t validated_batch_size(const fs::path& file) {
  const std::string stem = file.stem().string();
  const std::string_view text = std::string_view(stem).substr(kValidationPrefix.size());
  int batch_size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), batch_size);
  if (error != std::errc() || end != text.data() + text.size() || batch_size < 1 || text.front() == '0') {
    throw Error(
        fmt::format("{}: '{}' is not a valid batch size; name the file validation-BSZ.csv, such as validation-128.csv",
                    file.string(), text));
  }
  return static_cast<std::size_t>(batch_size);
}

// Returns the entries of a directory, sorted by name, so that errors do not depend on the file system's order.
std::vector<fs::path> entries(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(".")) paths.push_back(entry->path());
  }
  if (error) {
    throw Error(
        fmt::format("cannot read directory '{}': {}; expected a directory with one subdirectory per application",
                    directory.string(), error.message()));
  }
  std::ranges::sort(paths);
  return paths;
}

std::string content(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Returns the application's own settings file, or the one that belongs to the same measurements in `known`.
fs::path settings_of(const fs::path& directory, const fs::path& known) {
  const fs::path own = directory / "application.json", namesake = known / directory.filename();
  if (known.empty() || fs::exists(own)) return own;
  const bool same = content(directory / "placements.csv") == content(namesake / "placements.csv");
  return same ? namesake / "application.json" : own;
}

std::shared_ptr<const Application> load_application(const fs::path& directory, const fs::path& known) {
  ApplicationData data;
  data.name = directory.filename().string();
  for (const fs::path& file : entries(directory)) {
    const std::string name = file.filename().string();
    if (name.starts_with(kValidationPrefix) && name.ends_with(".csv")) {
      data.validation.emplace(validated_batch_size(file), load_validation(file));
    }
  }
  if (data.validation.empty()) {
    throw Error(fmt::format("{}: no validation-BSZ.csv; add one for each total batch size used in training",
                            directory.string()));
  }
  const auto placements = load_placements(directory / "placements.csv");
  const auto scalability = load_scalability(directory / "scalability.csv");
  const auto [smallest, largest] = std::ranges::minmax(placements, {}, &StepTimes::PlacementRow::local_bsz);
  data.min_local_bsz = static_cast<std::size_t>(smallest.local_bsz);
  data.max_local_bsz = static_cast<std::size_t>(largest.local_bsz);
  const auto shortest =
      std::ranges::min_element(data.validation, {}, [](const auto& each) { return each.second.size(); });
  data.epochs = static_cast<int>(shortest->second.size());
  apply_settings(settings_of(directory, known), data);
  if (data.validation.rbegin()->first < data.min_local_bsz) {
    throw Error(fmt::format(
        "{}: step times were measured with at least {} samples per replica, but the largest validated batch "
        "size is {}; add a validation-BSZ.csv for a larger batch size, or rows with a smaller "
        "local_bsz to placements.csv",
        directory.string(), data.min_local_bsz, data.validation.rbegin()->first));
  }
  return std::make_shared<const Application>(std::move(data), StepTimes(placements, scalability));
}

}  // namespace

Applications load_traces(const fs::path& directory, const fs::path& known) {
  Applications applications;
  for (const fs::path& path : entries(directory)) {
    if (!fs::is_directory(path)) continue;
    applications.emplace(path.filename().string(), load_application(path, known));
  }
  if (applications.empty()) {
    throw Error(fmt::format("{}: no subdirectories found; expected one per application", directory.string()));
  }
  return applications;
}

}  // namespace adaptdl::sched
