// What `adaptdl ls` shows: the runs of this machine and the jobs of a cluster at one moment, in any of its forms.
//
// Threading: plain values and functions; used by one thread at a time.
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
  std::size_t older = 0;  // runs that are left out
  std::vector<kube::JobView> jobs;
  std::optional<std::string> context;  // of the jobs; none: this is of this machine alone
  kube::Time now;
};

// Runs that ended before are listed on request only.
inline constexpr auto kRecent = std::chrono::hours(24);

// The runs of this machine: those that go on or ended lately, or `all`; with `names`, those of them, whenever they
// ended.
void add_runs(Listing& listing, bool all, const std::vector<std::string>& names);

// An array of objects, runs first. Those of runs are as `sched::to_json` makes them, and where there are jobs too, all
// say `where` they are.
nlohmann::json to_json(const Listing& listing);
nlohmann::json to_json(const kube::JobView& view);

enum class Form { kTable, kWide, kJson, kYaml, kName };

// The whole text, lines with their ends. `namespaces`: jobs are called NAMESPACE/NAME.
std::string render(const Listing& listing, Form form, bool namespaces);

}  // namespace adaptdl::cli
