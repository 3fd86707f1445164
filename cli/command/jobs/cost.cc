#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "command/base/cluster_options.h"
#include "command/base/command.h"
#include "terminal/dump_json.h"
#include "terminal/print.h"
#include "view/cost_table.h"

namespace adaptdl::cli {
namespace {

struct CostOptions {
  ClusterOptions cluster;
  std::string name_space = "adaptdl", month, by = "user";
  bool json = false;
};

// Returns the costs of each month, oldest first, or only those of the `wanted` month.
std::vector<MonthlyCost> read_costs(kube::Client& client, const std::string& name_space, CostBy by,
                                    const std::optional<kube::Month>& wanted) {
  const kube::Time now = std::chrono::system_clock::now();
  std::vector<MonthlyCost> months;
  for (const nlohmann::json& each : client.list(kube::path(kube::kConfigMaps, name_space), kube::usage_ledgers())) {
    const auto month = kube::month_of(each);
    if (!month || (wanted && *month != *wanted)) continue;
    months.push_back(monthly_cost(kube::UsageLedger::parse(*month, each), by, now));
  }
  std::ranges::sort(months, {}, &MonthlyCost::month);
  return months;
}

void run(const CostOptions& options) {
  if (options.by != "user" && options.by != "namespace")
    throw UsageError(fmt::format("cost: --by must be user or namespace, not '{}'", options.by));
  const auto wanted = kube::Month::parse(options.month);
  if (!options.month.empty() && !wanted)
    throw UsageError(fmt::format("cost: --month expects YYYY-MM, such as 2026-11, got '{}'", options.month));
  kube::Client client(require_cluster(options.cluster));
  const CostBy by = options.by == "user" ? CostBy::kUser : CostBy::kNamespace;
  const std::vector<MonthlyCost> months = read_costs(client, options.name_space, by, wanted);
  if (options.json) return print_text(dump_json(cost_json(months, by)) + '\n');
  if (months.empty()) {
    print_notice("no usage is recorded in namespace '{}'{}; use -n to select the operator's namespace",
                 options.name_space, wanted ? " for " + wanted->to_string() : "");
    return;
  }
  cost_table(months, by).print();
}

}  // namespace

void add_cost(CLI::App& app, int&) {
  auto options = std::make_shared<CostOptions>();
  app.add_option("-n,--namespace", options->name_space, "Operator's namespace (default: adaptdl)")
      ->type_name("NAMESPACE");
  app.add_option("--context", options->cluster.context, "Context from the kubeconfig (default: the current one)")
      ->type_name("NAME");
  app.add_option("--month", options->month, "Month to show, in UTC (default: all months)")->type_name("YYYY-MM");
  app.add_option("--by", options->by, "Group by user or by namespace (default: user)")->type_name("user|namespace");
  app.add_flag("--json", options->json, "Print JSON");
  app.footer(
      "Deleted jobs are included. COST is computed from the operator's node prices. The command requires permission\n"
      "to list ConfigMaps in the operator's namespace.");
  app.callback([options] { run(*options); });
}

}  // namespace adaptdl::cli
