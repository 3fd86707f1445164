#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "command/base/command.h"
#include "command/simulate/simulate_plan.h"
#include "command/simulate/simulate_plot.h"
#include "simulation/cycle_log.h"
#include "simulation/result_table.h"
#include "simulation/simulation_screen.h"
#include "terminal/dump_json.h"
#include "terminal/print.h"

namespace adaptdl::cli {
namespace {

std::atomic<bool> stop_wanted = false;
std::atomic<int> stopped_by = 0;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

// A signal ends the simulations at their next cycle, and partial files are removed. If the same signal arrives again,
// it kills the process.
void stop_on_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int signal) {
    stopped_by = signal;
    stop_wanted = true;
  };
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

bool has_prices(const SimulatePlan& plan) {
  return std::ranges::any_of(plan.simulation.groups, [](const sched::NodeGroup& group) { return group.price > 0; });
}

int simulate(const SimulateOptions& options) {
  stop_on_signals();
  const SimulatePlan plan = make_plan(options);
  const std::vector<sched::SimulationTask> tasks = plan.tasks();
  std::optional<CycleLog> log;
  if (!options.out.empty()) log.emplace(options.out, tasks.size());
  SimulationScreen screen(tasks, log ? &*log : nullptr);
  const auto results = sched::simulate(tasks, plan.simulation, &screen, &stop_wanted, plan.threads);
  screen.close();
  if (stop_wanted) {
    print_notice("interrupted; no results{}", log ? ", and '" + options.out + "' is unchanged" : "");
    return 128 + stopped_by;
  }
  if (options.json)
    print_text(dump_json(result_json(results, has_prices(plan))) + '\n');
  else
    result_table(results, {.node_hours = plan.simulation.autoscale.has_value(), .costs = has_prices(plan)}).print();
  if (log) log->close();
  return 0;
}

void add_cluster_options(CLI::App& app, SimulateOptions& options) {
  app.add_option("--nodes", options.nodes, "Number of nodes in the cluster (default: 16)")->type_name("N");
  app.add_option("--gpus", options.gpus, "Number of GPUs per node (default: 4)")->type_name("N");
  app.add_option("--node-price", options.node_price, "Hourly price of a node, in any currency; adds cost columns")
      ->type_name("PRICE");
  app.add_option("--node-group", options.node_groups,
                 "Group of nodes with one GPU type; SPEED is relative to the GPUs in the traces; replaces --nodes, "
                 "--gpus and --node-price; may be given several times")
      ->type_name("TYPE:NODES:GPUS:SPEED[:PRICE]")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--autoscale", options.autoscale, "Let the policy choose the number of nodes; replaces --nodes")
      ->type_name("MIN:MAX");
  app.add_option("--interval", options.interval, "Simulated time between scheduling cycles (default: 60s)")
      ->type_name("DURATION");
  app.add_option("--restart-cost", options.restart_cost,
                 "Training time that a job loses when its allocation changes (default: 30s)")
      ->type_name("DURATION");
  app.add_option("--interference", options.interference,
                 "Fraction by which distributed jobs slow down if they share a node, from 0 to less than 1 "
                 "(default: 0)")
      ->type_name("FRACTION");
}

}  // namespace

void add_simulate(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<SimulateOptions>();
  // This comes first because CLI11 2.4 and later reject a subcommand's option --workload if the parent already has a
  // positional with that name.
  add_simulate_plot(app);
  app.add_option("workload", options->workloads,
                 "CSV file with jobs and their arrival times, or a directory with such files at any depth")
      ->required()
      ->type_name("FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option(
         "--policy", options->policies,
         fmt::format(
             "Scheduling policy, or a comma-separated list of policies to compare; `all` compares every policy; "
             "may be given several times (default: {})",
             sched::policy_names().front()))
      ->type_name(fmt::format("{}|all", fmt::join(sched::policy_names(), "|")))
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--traces", options->traces,
                 "Directory with the applications' measurements (default: those of the Pollux paper)")
      ->type_name("DIR");
  add_cluster_options(app, *options);
  app.add_option("--fairness", options->fairness,
                 "Fairness exponent, for policies that use one; more negative is fairer (default: -1)")
      ->type_name("P");
  app.add_option("--seed", options->seed, "Seed for a policy's random choices (default: 0)")->type_name("N");
  app.add_option("--threads", options->threads,
                 "Number of simulations to run at the same time (default: one per processor)")
      ->type_name("N");
  app.add_option("-o,--output", options->out, "Write every scheduling cycle to this file, as JSON lines")
      ->type_name("FILE");
  app.add_flag("--json", options->json, "Print JSON");
  app.footer("All times are simulated; they do not describe this machine.");
  app.callback([options, &exit_code] { exit_code = simulate(*options); });
}

}  // namespace adaptdl::cli
