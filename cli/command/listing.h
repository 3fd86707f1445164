// Collects and formats what `adaptdl ls` shows: the runs of this machine and the jobs of a cluster at one moment.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/job_book.h"
#include "local/run_status.h"

namespace adaptdl::cli {

struct Listing {
  std::vector<sched::RunStatus> runs;
  std::size_t older = 0;  // number of runs that are left out
  std::vector<kube::JobView> jobs;
  std::optional<std::string> context;  // of the jobs; none: only this machine is listed
  kube::Time now;
};

// Runs that ended longer ago are listed only on request.
inline constexpr auto kRecent = std::chrono::hours(24);

// Adds the runs of this machine: those that are active or ended recently, or `all` of them. With `names`, adds only the
// named ones, whenever they ended.
void add_runs(Listing& listing, bool all, const std::vector<std::string>& names);

// Returns an array of objects, runs first. Runs are formatted by `sched::to_json`; if a cluster is listed, all objects
// have a field `where`.
nlohmann::json to_json(const Listing& listing);
nlohmann::json to_json(const kube::JobView& view);

enum class Form { kTable, kWide, kJson, kYaml, kName };

// Returns the whole text, in which every line ends with a newline. `namespaces`: jobs are named NAMESPACE/NAME.
std::string render(const Listing& listing, Form form, bool namespaces);

}  // namespace adaptdl::cli
