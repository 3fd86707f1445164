#include "view/cost_table.h"

#include <doctest/doctest.h>

namespace cost_table_test {

using namespace adaptdl;
using nlohmann::json;
using namespace std::chrono_literals;

namespace {

const kube::Month kMonth = *kube::Month::parse("2026-11");

kube::UsageRecord job(const std::string& uid, const std::string& user, const std::string& name_space, double hours,
                      bool priced = true) {
  kube::UsageRecord record{.uid = uid, .name_space = name_space, .name = uid, .user = user, .usage = {}};
  record.usage.gpu_seconds = hours * 3600;
  if (priced) record.usage.cost = hours * 2;
  return record;
}

kube::UsageLedger ledger(const std::vector<kube::UsageRecord>& jobs) {
  kube::UsageLedger result(kMonth);
  result.record(jobs, {}, kMonth.begin());
  return result;
}

}  // namespace

TEST_CASE("users are sorted by cost, with a total for the month") {
  const auto by = cli::CostBy::kUser;
  const auto month = monthly_cost(
      ledger({job("a", "alice", "x", 1), job("b", "bob", "x", 2.5), job("c", "alice", "y", 1), job("d", "", "y", 0.5)}),
      by, kMonth.end());
  CHECK(cli::cost_table({month}, by).render() ==
        "MONTH    USER     JOBS  GPU-HOURS   COST\n"
        "2026-11  bob         1       2.50   5.00\n"
        "2026-11  alice       2       2.00   4.00\n"
        "2026-11  -           1       0.50   1.00\n"
        "2026-11  (total)     4       5.00  10.00\n");
  const json rows = cli::cost_json({month}, by);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0] == json{{"month", "2026-11"}, {"user", "bob"}, {"jobs", 1}, {"gpuHours", 2.5}, {"cost", 5.0}});
  CHECK(rows[2]["user"].is_null());
}

TEST_CASE("usage is summed per namespace, and the cost is unknown without prices") {
  const auto by = cli::CostBy::kNamespace;
  const auto month = monthly_cost(
      ledger({job("a", "alice", "x", 1, false), job("b", "bob", "x", 2, false), job("c", "bob", "y", 4, false)}), by,
      kMonth.end());
  CHECK(cli::cost_table({month}, by).render() ==
        "MONTH    NAMESPACE  JOBS  GPU-HOURS  COST\n"
        "2026-11  y             1       4.00     -\n"
        "2026-11  x             2       3.00     -\n"
        "2026-11  (total)       3       7.00     -\n");
  CHECK(cli::cost_json({month}, by)[0] ==
        json{{"month", "2026-11"}, {"namespace", "y"}, {"jobs", 1}, {"gpuHours", 4.0}, {"cost", nullptr}});
}

}  // namespace cost_table_test
