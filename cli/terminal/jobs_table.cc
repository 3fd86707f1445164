#include "terminal/jobs_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "terminal/format.h"
#include "terminal/status_line.h"

namespace adaptdl::cli {
namespace {

using Row = std::vector<std::string>;

std::string since(std::optional<kube::Time> begin, kube::Time end) {
  return begin ? format_duration(std::chrono::duration_cast<std::chrono::milliseconds>(end - *begin)) : "-";
}

std::string clock(std::optional<kube::Time> begin, kube::Time end) {
  return begin ? format_clock(std::chrono::duration_cast<std::chrono::milliseconds>(end - *begin)) : "-";
}

// Returns the completed work as a percentage, or as a count if the total is unknown.
std::string share(const nlohmann::json& report) {
  if (const auto percent = percent_text(report)) return *percent;
  const auto done = progress_number(report, "progress");
  return done ? count_text(*done) : "-";
}

std::string epoch(const nlohmann::json& report) {
  const auto value = progress_number(report, "epoch");
  return value ? "epoch " + epoch_text(*value) : "-";
}

std::string batch(const nlohmann::json& report, const char* key) {
  const auto value = progress_number(report, key);
  return value ? count_text(*value) : "-";
}

std::string gpu_hours_text(const kube::JobUsage& usage, kube::Time now) {
  const double hours = usage.gpu_hours(now);
  return hours > 0 ? fmt::format("{:.2f}", hours) : "-";
}

std::string cost_text(const kube::JobUsage& usage, kube::Time now) {
  const auto cost = usage.total_cost(now);
  return cost ? fmt::format("{:.2f}", *cost) : "-";
}

std::string bounds(std::optional<int> min, std::optional<int> max) {
  if (!min && !max) return "-";
  if (min == max) return fmt::format("{}", *min);
  return fmt::format("{}:{}", min ? fmt::to_string(*min) : "", max ? fmt::to_string(*max) : "");
}

Row run_row(const sched::RunStatus& run, bool wide, kube::Time now) {
  const std::string replicas =
      sched::has_ended(run) ? fmt::format("-/{}", run.wanted) : fmt::format("{}/{}", run.replicas, run.wanted);
  const std::string progress = share(run.progress);
  Row row = {run.name,
             "local",
             run.state,
             replicas,
             fmt::to_string(run.restarts),
             progress == "-" ? epoch(run.progress) : progress,
             since(run.started, now),
             clock(run.started, run.ended.value_or(now))};
  if (wide) row.insert(row.end(), {bounds(run.min, run.max), batch(run.progress, "batch_size"), "-", "-", run.host});
  row.push_back(run.why);
  return row;
}

std::string status(const kube::Job& job) {
  if (job.deleted) return "deleting";
  std::string text = job.phase.empty() ? "Pending" : job.phase;
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string nodes(const kube::JobView& view) {
  std::set<std::string> all(view.job.allocation.begin(), view.job.allocation.end());
  for (const kube::Replica& replica : view.replicas) all.insert(replica.node);
  all.erase("");
  return all.empty() ? "-" : fmt::format("{}", fmt::join(all, ","));
}

Row job_row(const kube::JobView& view, const JobsTableStyle& style, kube::Time now) {
  const kube::Job& job = view.job;
  const std::string replicas = job.ended() ? (view.wanted > 0 ? fmt::format("-/{}", view.wanted) : "-")
                                           : fmt::format("{}/{}", view.ready, view.wanted);
  const bool ran = job.group || job.completed || !view.replicas.empty();
  Row row = {job_title(job, style.namespaces),
             style.context,
             status(job),
             replicas,
             fmt::to_string(job.group.value_or(0)),
             share(job.train),
             since(job.created, now),
             ran ? clock(job.created, job.completed.value_or(now)) : "-"};
  if (style.wide)
    row.insert(row.end(), {bounds(job.min_replicas, job.max_replicas), batch(job.train, "initBatchSize"),
                           gpu_hours_text(job.usage, now), cost_text(job.usage, now), nodes(view)});
  row.push_back(view.why);
  return row;
}

}  // namespace

std::string job_title(const kube::Job& job, bool namespaces) {
  return namespaces ? job.name_space + '/' + job.name : job.name;
}

Table jobs_table(std::span<const sched::RunStatus> runs, std::span<const kube::JobView> jobs,
                 const JobsTableStyle& style, kube::Time now) {
  using Align = Table::Align;
  std::vector<Table::Column> columns = {{"NAME"},
                                        {"WHERE"},
                                        {"STATUS"},
                                        {"REPLICAS", Align::kRight},
                                        {"RESTARTS", Align::kRight},
                                        {"PROGRESS", Align::kRight},
                                        {"AGE", Align::kRight},
                                        {"RUNTIME", Align::kRight}};
  if (style.wide)
    columns.insert(columns.end(), {{"BOUNDS", Align::kRight},
                                   {"BATCH", Align::kRight},
                                   {"GPU-HOURS", Align::kRight},
                                   {"COST", Align::kRight},
                                   {"NODES", Align::kLeft}});
  columns.push_back({"WHY"});
  Table table(std::move(columns));
  for (const sched::RunStatus& run : runs) table.add_row(run_row(run, style.wide, now));
  for (const kube::JobView& job : jobs) table.add_row(job_row(job, style, now));
  return table;
}

}  // namespace adaptdl::cli
