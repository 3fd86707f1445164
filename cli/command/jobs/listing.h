// Collects and formats what `adaptdl ls` shows: a snapshot of the local runs and cluster jobs.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/jobs/job_index.h"
#include "local/record/run_status.h"

namespace adaptdl::cli {

struct Listing {
  std::vector<sched::RunStatus> runs;
  std::size_t older = 0;  // number of older runs that are not listed
  std::vector<kube::JobView> jobs;
  std::optional<std::string> context;  // the jobs' context; nullopt if only local runs are listed
  kube::Time now;
};

// Runs that ended longer ago than this are listed only on request.
inline constexpr auto kRecent = std::chrono::hours(24);

// Adds local runs: those that are active or ended recently, or all runs if `all` is set. If `names` is not empty, adds
// only the named runs, regardless of when they ended.
void add_runs(Listing& listing, bool all, const std::vector<std::string>& names);

// Returns an array of objects, runs first. Runs are formatted by `sched::to_json`. All objects have a field `where`.
nlohmann::json to_json(const Listing& listing);
nlohmann::json to_json(const kube::JobView& view);

enum class Form { kTable, kWide, kJson, kYaml, kName };

// Returns the listing as text, in which every line ends with a newline. If `namespaces` is set, jobs are shown as
// NAMESPACE/NAME.
std::string render(const Listing& listing, Form form, bool namespaces);

}  // namespace adaptdl::cli
