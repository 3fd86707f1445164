// What `adaptdl cost` shows: what jobs have used by month and user or namespace, as a table and as JSON.
//
// Threading: the functions may be called from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "kube/usage_ledger.h"
#include "terminal/table.h"

namespace adaptdl::cli {

enum class CostBy { kUser, kNamespace };

// The rows of a month: those with the highest cost, then with most GPU hours first. REQUIRES one ledger per month.
struct MonthlyCost {
  kube::Month month;
  std::vector<kube::UsageSum> sums;  // only the user or only the namespace is set
  kube::UsageSum total;
};

MonthlyCost monthly_cost(const kube::UsageLedger& ledger, CostBy by, kube::Time now);

// MONTH, USER or NAMESPACE, JOBS, GPU-HOURS, COST; the last row of each month is its total. A user who is not known is
// "-", as are costs without prices.
Table cost_table(const std::vector<MonthlyCost>& months, CostBy by);

// An array of objects with the fields month, user or namespace, jobs, gpuHours and cost. An unknown user is null.
nlohmann::json cost_json(const std::vector<MonthlyCost>& months, CostBy by);

}  // namespace adaptdl::cli
