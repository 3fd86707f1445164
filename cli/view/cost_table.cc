#include "view/cost_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace adaptdl::cli {
namespace {

using nlohmann::json;

const std::string& name_of(const kube::UsageSum& sum, CostBy by) {
  return by == CostBy::kUser ? sum.user : sum.name_space;
}

void add_row(Table& table, const MonthlyCost& month, const std::string& name, const kube::UsageSum& sum) {
  table.add_row({month.month.to_string(), name, std::to_string(sum.jobs), fmt::format("{:.2f}", sum.gpu_hours),
                 sum.cost ? fmt::format("{:.2f}", *sum.cost) : "-"});
}

}  // namespace

MonthlyCost monthly_cost(const kube::UsageLedger& ledger, CostBy by, kube::Time now) {
  MonthlyCost result{.month = ledger.month(), .sums = {}, .total = {}};
  std::map<std::string, kube::UsageSum> by_name;
  for (const kube::UsageSum& each : ledger.sums(now)) {
    kube::UsageSum& sum = by_name[name_of(each, by)];
    (by == CostBy::kUser ? sum.user : sum.name_space) = name_of(each, by);
    sum += each;
    result.total += each;
  }
  for (auto& [name, sum] : by_name) result.sums.push_back(std::move(sum));
  std::ranges::stable_sort(result.sums, std::ranges::greater(),
                           [](const kube::UsageSum& sum) { return std::tuple(sum.cost.value_or(0), sum.gpu_hours); });
  return result;
}

Table cost_table(const std::vector<MonthlyCost>& months, CostBy by) {
  using Align = Table::Align;
  Table table({{"MONTH"},
               {by == CostBy::kUser ? "USER" : "NAMESPACE"},
               {"JOBS", Align::kRight},
               {"GPU-HOURS", Align::kRight},
               {"COST", Align::kRight}});
  for (const MonthlyCost& month : months) {
    for (const kube::UsageSum& sum : month.sums) {
      const std::string& name = name_of(sum, by);
      add_row(table, month, name.empty() ? "-" : name, sum);
    }
    add_row(table, month, "(total)", month.total);
  }
  return table;
}

json cost_json(const std::vector<MonthlyCost>& months, CostBy by) {
  json rows = json::array();
  for (const MonthlyCost& month : months) {
    for (const kube::UsageSum& sum : month.sums) {
      const std::string& name = name_of(sum, by);
      rows.push_back({{"month", month.month.to_string()},
                      {by == CostBy::kUser ? "user" : "namespace", name.empty() ? json() : json(name)},
                      {"jobs", sum.jobs},
                      {"gpuHours", sum.gpu_hours},
                      {"cost", sum.cost ? json(*sum.cost) : json()}});
    }
  }
  return rows;
}

}  // namespace adaptdl::cli
