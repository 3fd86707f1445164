#include "view/list_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/text_parts.h"
#include "terminal/format.h"
#include "view/job_text.h"
#include "view/status_line.h"

namespace adaptdl::cli {
namespace {

std::chrono::milliseconds between(kube::Time begin, kube::Time end) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(end - begin);
}

// Formats a reported number, or returns "-" if it is missing.
std::string reported(const nlohmann::json& report, const char* key, std::string (*format)(double) = count_text) {
  const auto value = progress_number(report, key);
  return value ? format(*value) : "-";
}

std::string reported_share(const nlohmann::json& report) {
  return percent_text(report).value_or(reported(report, "progress"));
}

std::string cost_cell(const kube::JobUsage& usage, kube::Time now) {
  const auto cost = usage.total_cost(now);
  return cost ? fmt::format("{:.2f}", *cost) : "-";
}

std::string bounds_cell(std::optional<int> min, std::optional<int> max) {
  if (!min && !max) return "-";
  if (min == max) return fmt::format("{}", *min);
  return fmt::format("{}:{}", min ? fmt::to_string(*min) : "", max ? fmt::to_string(*max) : "");
}

std::string state_cell(const kube::Job& job) {
  if (job.deleted) return "deleting";
  return job.phase.empty() ? "pending" : lower(job.phase);
}

std::string nodes_cell(const kube::JobView& view) {
  std::set<std::string> all(view.job.allocation.begin(), view.job.allocation.end());
  for (const kube::Replica& replica : view.replicas) all.insert(replica.node);
  all.erase("");
  return all.empty() ? "-" : fmt::format("{}", fmt::join(all, ","));
}

}  // namespace

ListRow list_row(const sched::RunStatus& run, kube::Time now) {
  const std::string ready = sched::has_ended(run) ? "-" : fmt::to_string(run.replicas);
  return {.name = run.name,
          .where = "local",
          .state = run.state,
          .replicas = fmt::format("{}/{}", ready, run.wanted),
          .restarts = fmt::to_string(run.restarts),
          .progress = reported_share(run.progress),
          .epoch = reported(run.progress, "epoch", epoch_text),
          .loss = reported(run.progress, "loss", [](double loss) { return fmt::format("{:.4g}", loss); }),
          .samples = reported(run.progress, "samples_per_s", rate_text),
          .goodput = reported(run.progress, "goodput", rate_text),
          .runtime = format_clock(between(run.started, run.ended.value_or(now))),
          .age = format_duration(between(run.started, now)),
          .bounds = bounds_cell(run.min, run.max),
          .batch = reported(run.progress, "batch_size"),
          .nodes = run.host,
          .why = run.why};
}

ListRow list_row(const kube::JobView& view, const std::string& where, bool namespaces, kube::Time now) {
  const kube::Job& job = view.job;
  ListRow row{.name = job_title(job, namespaces),
              .where = where,
              .state = state_cell(job),
              .restarts = fmt::to_string(job.group.value_or(0)),
              .progress = reported_share(job.train),
              .bounds = bounds_cell(job.min_replicas, job.max_replicas),
              .batch = reported(job.train, "initBatchSize"),
              .cost = cost_cell(job.usage, now),
              .nodes = nodes_cell(view),
              .why = view.why};
  if (!job.ended()) {
    row.replicas = fmt::format("{}/{}", view.ready, view.wanted);
    if (const auto speed = predicted_speed(view)) row.goodput = rate_text(speed->goodput);
  } else if (view.wanted > 0) {
    row.replicas = fmt::format("-/{}", view.wanted);
  }
  if (job.created) {
    row.age = format_duration(between(*job.created, now));
    const bool ran = job.group || job.completed || !view.replicas.empty();
    if (ran) row.runtime = format_clock(between(*job.created, job.completed.value_or(now)));
  }
  if (const double hours = job.usage.gpu_hours(now); hours > 0) row.gpu_hours = fmt::format("{:.2f}", hours);
  return row;
}

std::string job_title(const kube::Job& job, bool namespaces) {
  return namespaces ? job.name_space + '/' + job.name : job.name;
}

Table list_table(std::span<const ListRow> rows, bool wide, bool compact) {
  constexpr auto kRight = Table::Align::kRight;
  std::vector<Table::Column> columns = {{"NAME"},
                                        {"WHERE"},
                                        {"STATE"},
                                        {"REPLICAS", kRight},
                                        {"RESTARTS", kRight},
                                        {"PROGRESS", kRight},
                                        {"EPOCH", kRight},
                                        {"LOSS", kRight},
                                        {"SAMPLES/S", kRight},
                                        {"GOODPUT", kRight},
                                        {"RUNTIME", kRight}};
  if (wide)
    columns.insert(columns.end(), {{"AGE", kRight},
                                   {"BOUNDS", kRight},
                                   {"BATCH", kRight},
                                   {"GPU-HOURS", kRight},
                                   {"COST", kRight},
                                   {"NODES"}});
  columns.push_back({"WHY"});
  std::vector<std::vector<std::string>> lines;
  for (const ListRow& row : rows) {
    lines.push_back({row.name, row.where, row.state, row.replicas, row.restarts, row.progress, row.epoch, row.loss,
                     row.samples, row.goodput, row.runtime});
    if (wide)
      lines.back().insert(lines.back().end(), {row.age, row.bounds, row.batch, row.gpu_hours, row.cost, row.nodes});
    lines.back().push_back(row.why);
  }
  for (std::size_t i = columns.size(); compact && i-- > 0;) {
    if (std::ranges::any_of(lines, [i](const auto& line) { return line[i] != "-"; })) continue;
    columns.erase(columns.begin() + static_cast<std::ptrdiff_t>(i));
    for (auto& line : lines) line.erase(line.begin() + static_cast<std::ptrdiff_t>(i));
  }
  Table table(std::move(columns));
  for (auto& line : lines) table.add_row(std::move(line));
  return table;
}

}  // namespace adaptdl::cli
