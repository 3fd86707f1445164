#include "simulation/result_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "terminal/format.h"

namespace adaptdl::cli {
namespace {

using sched::SimulationResult;

// A column: its header, its key in JSON (null if it is not in JSON), and, for the table, its number of decimals and its
// unit.
struct Figure {
  const char* header;
  const char* key;
  double SimulationResult::*value;
  int decimals;
  const char* unit;
};

constexpr Figure kFigures[] = {
    {"AVERAGE JCT", "average_jct_s", &SimulationResult::average_jct, 0, " s"},
    {"MEDIAN JCT", "p50_jct_s", &SimulationResult::p50_jct, 0, " s"},
    {"P99 JCT", "p99_jct_s", &SimulationResult::p99_jct, 0, " s"},
    {"MAKESPAN", "makespan_s", &SimulationResult::makespan, 0, " s"},
    {"RESTARTS/JOB", "restarts_per_job", &SimulationResult::restarts_per_job, 1, ""},
    {"GPU-HOURS", "gpu_hours", &SimulationResult::gpu_hours, 1, ""},
    {"WORST FTF", "worst_ftf", &SimulationResult::worst_ftf, 2, ""},
};
constexpr Figure kNodeHours = {"NODE-HOURS", nullptr, &SimulationResult::node_hours, 1, ""};
constexpr Figure kCosts[] = {
    {"COST", "cost", &SimulationResult::cost, 2, ""},
    {"NODE COST", "node_cost", &SimulationResult::node_cost, 2, ""},
};

std::vector<Figure> figures_of(const ResultColumns& columns) {
  std::vector<Figure> figures(std::begin(kFigures), std::end(kFigures));
  if (columns.node_hours) figures.push_back(kNodeHours);
  if (columns.costs) figures.insert(figures.end(), std::begin(kCosts), std::end(kCosts));
  return figures;
}

std::string text(const Figure& figure, const SimulationResult& result) {
  const double value = result.*figure.value;
  if (figure.decimals > 0) return fmt::format("{:.{}f}{}", value, figure.decimals, figure.unit);
  return format_count(std::llround(value)) + figure.unit;
}

// Returns the mean of each policy's results, in the order in which the policies first appear.
std::vector<SimulationResult> means(std::span<const SimulationResult> results, const std::vector<Figure>& figures) {
  std::vector<SimulationResult> all;
  for (const SimulationResult& result : results) {
    if (std::ranges::find(all, result.policy, &SimulationResult::policy) != all.end()) continue;
    SimulationResult mean;
    mean.workload = "mean";
    mean.policy = result.policy;
    double count = 0;
    for (const SimulationResult& one : results) count += one.policy == result.policy;
    for (const SimulationResult& one : results) {
      if (one.policy != result.policy) continue;
      for (const Figure& figure : figures) mean.*figure.value += one.*figure.value / count;
    }
    all.push_back(std::move(mean));
  }
  return all;
}

}  // namespace

Table result_table(std::span<const SimulationResult> results, const ResultColumns& columns) {
  const std::vector<Figure> figures = figures_of(columns);
  std::vector<Table::Column> headers = {{"WORKLOAD"}, {"POLICY"}};
  for (const Figure& figure : figures) headers.push_back({figure.header, Table::Align::kRight});
  Table table(std::move(headers));
  const auto add = [&](const SimulationResult& result) {
    std::vector<std::string> cells = {result.workload, result.policy};
    for (const Figure& figure : figures) cells.push_back(text(figure, result));
    table.add_row(std::move(cells));
  };
  std::set<std::string> workloads;
  for (const SimulationResult& result : results) {
    workloads.insert(result.workload);
    add(result);
  }
  if (workloads.size() < 2) return table;
  for (const SimulationResult& mean : means(results, figures)) add(mean);
  return table;
}

nlohmann::ordered_json result_json(std::span<const SimulationResult> results, bool costs) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const SimulationResult& result : results) {
    auto& row = rows.emplace_back(nlohmann::ordered_json{{"workload", result.workload}, {"policy", result.policy}});
    for (const Figure& figure : figures_of({.node_hours = false, .costs = costs}))
      row[figure.key] = result.*figure.value;
  }
  return rows;
}

}  // namespace adaptdl::cli
