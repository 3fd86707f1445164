#include "tuner/trial_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "adaptdl/error.h"
#include "checkpoint/files.h"
#include "tuner/event_results.h"
#include "tuner/printed_results.h"
#include "tuner/report_file.h"

namespace adaptdl::sched::tune {
namespace {

namespace fs = std::filesystem;

// How long to wait for a preferred source once another one has results.
constexpr std::chrono::seconds kHoldBack{1};

// Returns the source that an earlier search chose, or an empty string.
std::string stored_source(const fs::path& file) {
  std::ifstream stream(file);
  if (!stream && errno != ENOENT)
    throw Error(fmt::format("cannot read file '{}': {}", file.string(), std::strerror(errno)));
  std::string name;
  std::getline(stream, name);
  return name;
}

// The choice is stored before a result is delivered, because results that are delivered again must be the same.
void store_source(const fs::path& file, const std::string& name) {
  const fs::path draft = file.string() + ".new";
  checkpoint::OutputFile output(draft, checkpoint::OutputFile::Existing::kReplace);
  output.write(name + "\n");
  output.finish();
  std::error_code error;
  fs::rename(draft, file, error);
  if (error) throw Error(fmt::format("cannot write file '{}': {}", file.string(), error.message()));
  checkpoint::sync_directory(file.parent_path());
}

}  // namespace

fs::path TrialResults::report_file(const fs::path& directory) { return directory / "results.jsonl"; }
fs::path TrialResults::log_directory(const fs::path& directory) { return directory / "logs"; }
fs::path TrialResults::event_directory(const fs::path& directory) { return directory / "tensorboard"; }

TrialResults::TrialResults(fs::path directory, std::string metric, Notice notice) : directory_(std::move(directory)) {
  sources_.push_back({"report", std::make_unique<ReportFile>(report_file(directory_), metric)});
  sources_.push_back({"output", std::make_unique<PrintedResults>(log_directory(directory_), metric)});
  sources_.push_back({"events", std::make_unique<EventResults>(event_directory(directory_), directory_ / "events.jsonl",
                                                               metric, std::move(notice))});
  const fs::path file = directory_ / "source";
  const std::string name = stored_source(file);
  if (name.empty()) return;
  keep(name);
  if (sources_.empty())
    throw Error(
        fmt::format("invalid source '{}' in file '{}': expected report, output or events", name, file.string()));
}

bool TrialResults::has_more() const noexcept {
  return std::ranges::any_of(sources_, [](const Source& each) { return each.results->has_more(); });
}

bool TrialResults::is_blocked() const noexcept {
  return std::ranges::any_of(sources_, [](const Source& each) { return each.results->is_blocked(); });
}

void TrialResults::close() {
  for (const Source& source : sources_) source.results->close();
}

std::vector<Result> TrialResults::collect(Clock::time_point now, bool ended) {
  for (const Source& source : sources_) source.results->read(now, ended);
  if (!is_chosen_) choose(now, ended);
  return is_chosen_ ? sources_.front().results->take() : std::vector<Result>{};
}

void TrialResults::choose(Clock::time_point now, bool ended) {
  const auto found = std::ranges::find_if(sources_, [](const Source& each) { return each.results->has_results(); });
  if (found == sources_.end()) return;
  if (!found_since_) found_since_ = now;
  const bool is_behind =
      std::any_of(sources_.begin(), found, [](const Source& each) { return each.results->has_more(); });
  const bool is_first = found == sources_.begin();
  if (!is_first && !ended && (is_behind || now - *found_since_ < kHoldBack)) return;
  const std::string name = found->name;
  store_source(directory_ / "source", name);
  keep(name);
}

void TrialResults::keep(const std::string& name) {
  std::erase_if(sources_, [&](const Source& each) { return each.name != name; });
  is_chosen_ = true;
}

}  // namespace adaptdl::sched::tune
