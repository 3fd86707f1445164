#include "command/jobs/listing.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/printable.h"
#include "local/record/run_client.h"
#include "local/record/run_directory.h"
#include "terminal/dump_json.h"
#include "terminal/terminal.h"
#include "terminal/yaml.h"
#include "view/list_table.h"

namespace adaptdl::cli {
namespace {

using nlohmann::json;

json time_or_null(std::optional<kube::Time> time) { return time ? json(kube::to_string(*time)) : json(); }

json int_or_null(std::optional<int> value) { return value ? json(*value) : json(); }

json to_json(const kube::Replica& replica) {
  return {{"pod", replica.name},       {"rank", replica.rank},   {"node", replica.node},
          {"phase", replica.phase},    {"ready", replica.ready}, {"restarts", replica.restarts},
          {"trouble", replica.trouble}};
}

bool is_named(const sched::RunStatus& run, const std::vector<std::string>& names) {
  return std::ranges::find(names, run.name) != names.end();
}

std::string table(const Listing& listing, bool wide, bool namespaces) {
  if (listing.runs.empty() && listing.jobs.empty()) {
    const std::string all = listing.context ? "runs or jobs" : "runs";
    if (listing.older == 0) return fmt::format("no {}\n", all);
    return fmt::format("no active or recent {}; --all shows {} more\n", all, listing.older);
  }
  std::vector<ListRow> rows;
  for (const sched::RunStatus& run : listing.runs) rows.push_back(list_row(run, listing.now));
  for (const kube::JobView& job : listing.jobs)
    rows.push_back(list_row(job, listing.context.value_or(""), namespaces, listing.now));
  const auto width = terminal_width(STDOUT_FILENO);
  return list_table(rows, wide, width.has_value()).render(width, use_colour(STDOUT_FILENO));
}

}  // namespace

void add_runs(Listing& listing, bool all, const std::vector<std::string>& names) {
  for (const sched::RunEntry& entry : sched::list_runs(sched::runs_directory())) {
    if (!names.empty() && !is_named(entry.status, names)) continue;
    sched::RunStatus run = sched::status_now(entry);
    if (names.empty() && !all && run.ended && listing.now - *run.ended > kRecent) {
      ++listing.older;
    } else {
      listing.runs.push_back(std::move(run));
    }
  }
}

json to_json(const kube::JobView& view) {
  const kube::Job& job = view.job;
  json replicas = json::array();
  for (const kube::Replica& replica : view.replicas) replicas.push_back(to_json(replica));
  return {{"namespace", job.name_space},
          {"name", job.name},
          {"state", job.deleted         ? "Deleting"
                    : job.phase.empty() ? "Pending"
                                        : job.phase},
          {"why", view.why},
          {"created", time_or_null(job.created)},
          {"ended", time_or_null(job.completed)},
          {"replicas", view.ready},
          {"wanted", view.wanted},
          {"min", int_or_null(job.min_replicas)},
          {"max", int_or_null(job.max_replicas)},
          {"restarts", job.group.value_or(0)},
          {"allocation", job.allocation},
          {"pods", std::move(replicas)},
          {"train", job.train}};
}

json to_json(const Listing& listing) {
  json all = json::array();
  for (const sched::RunStatus& run : listing.runs) {
    json one = sched::to_json(run);
    one["where"] = "local";
    all.push_back(std::move(one));
  }
  for (const kube::JobView& job : listing.jobs) {
    json one = to_json(job);
    one["where"] = listing.context.value_or("");
    all.push_back(std::move(one));
  }
  return all;
}

std::string render(const Listing& listing, Form form, bool namespaces) {
  if (form == Form::kJson) return dump_json(to_json(listing)) + '\n';
  if (form == Form::kYaml) return to_yaml(to_json(listing));
  if (form != Form::kName) return table(listing, form == Form::kWide, namespaces);
  std::string names;
  for (const sched::RunStatus& run : listing.runs) names += printable(run.name) + '\n';
  for (const kube::JobView& view : listing.jobs) names += printable(job_title(view.job, namespaces)) + '\n';
  return names;
}

}  // namespace adaptdl::cli
