// Formats what `adaptdl cost` shows: the jobs' usage by month and by user or namespace, as a table and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "kube/jobs/usage_ledger.h"
#include "terminal/table.h"

namespace adaptdl::cli {

enum class CostBy { kUser, kNamespace };

// The rows of one ledger, sorted by descending cost, then by descending GPU-hours.
struct MonthlyCost {
  kube::Month month;
  std::vector<kube::UsageSum> sums;  // only the user or only the namespace is set
  kube::UsageSum total;
};

MonthlyCost monthly_cost(const kube::UsageLedger& ledger, CostBy by, kube::Time now);

// Returns a table with the columns MONTH, USER or NAMESPACE, JOBS, GPU-HOURS and COST. The last row of each month is
// the month's total. Unknown users and costs are "-".
Table cost_table(const std::vector<MonthlyCost>& months, CostBy by);

// Returns an array of objects {month, user or namespace, jobs, gpuHours, cost}. An unknown user or cost is null.
nlohmann::json cost_json(const std::vector<MonthlyCost>& months, CostBy by);

}  // namespace adaptdl::cli
