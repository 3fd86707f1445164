#include "command/simulate/simulate_plan.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "command/base/installed_data.h"
#include "command/base/numbers.h"

namespace adaptdl::cli {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxNodes = 100'000;
constexpr int kMaxGpus = 1024;
constexpr int kMaxThreads = 1024;
constexpr double kMaxPrice = 1e9;

int parse_simulate_count(const std::string& text, const std::string& what, int min, int max) {
  return parse_number(text, "simulate: " + what, min, max, "an integer");
}

double parse_real(const std::string& text, const std::string& what, double min, double max) {
  return parse_number(text, "simulate: " + what, min, max, "a number");
}

double parse_duration_seconds(const std::string& text, const std::string& what) {
  return std::chrono::duration<double>(env::parse_duration(text, "simulate: " + what)).count();
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

sched::NodeGroup parse_group(const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() < 4 || parts.size() > 5 || parts[0].empty())
    throw UsageError(
        fmt::format("simulate: --node-group must be TYPE:NODES:GPUS:SPEED or TYPE:NODES:GPUS:SPEED:PRICE, such as "
                    "a100:4:8:2.5, not '{}'",
                    text));
  return {.gpu_type = parts[0],
          .nodes = parse_simulate_count(parts[1], "NODES in --node-group", 1, kMaxNodes),
          .gpus = parse_simulate_count(parts[2], "GPUS in --node-group", 1, kMaxGpus),
          .speed = parse_real(parts[3], "SPEED in --node-group", 0.001, 1000),
          .price = parts.size() == 5 ? parse_real(parts[4], "PRICE in --node-group", 0, kMaxPrice) : 0};
}

void set_cluster(sched::SimulationOptions& simulation, const SimulateOptions& options) {
  const auto exclude = [](bool both, const char* one, const char* other) {
    if (both) throw UsageError(fmt::format("simulate: {} and {} cannot be used together", one, other));
  };
  exclude(!options.node_groups.empty() && !options.nodes.empty(), "--node-group", "--nodes");
  exclude(!options.node_groups.empty() && !options.gpus.empty(), "--node-group", "--gpus");
  exclude(!options.node_groups.empty() && !options.autoscale.empty(), "--node-group", "--autoscale");
  exclude(!options.node_groups.empty() && !options.node_price.empty(), "--node-group", "--node-price");
  exclude(!options.autoscale.empty() && !options.nodes.empty(), "--autoscale", "--nodes");
  if (!options.node_groups.empty()) simulation.groups.clear();
  for (const std::string& group : options.node_groups) simulation.groups.push_back(parse_group(group));
  sched::NodeGroup& first = simulation.groups.front();
  if (!options.nodes.empty()) first.nodes = parse_simulate_count(options.nodes, "--nodes", 1, kMaxNodes);
  if (!options.gpus.empty()) first.gpus = parse_simulate_count(options.gpus, "--gpus", 1, kMaxGpus);
  if (!options.node_price.empty()) first.price = parse_real(options.node_price, "--node-price", 0, kMaxPrice);
  if (options.autoscale.empty()) return;
  const std::vector<std::string> bounds = split(options.autoscale, ':');
  if (bounds.size() != 2)
    throw UsageError(fmt::format("simulate: --autoscale must be MIN:MAX, such as 4:16, not '{}'", options.autoscale));
  sched::Autoscale autoscale;
  autoscale.min_nodes = parse_simulate_count(bounds[0], "MIN in --autoscale", 1, kMaxNodes);
  autoscale.max_nodes = parse_simulate_count(bounds[1], "MAX in --autoscale", autoscale.min_nodes, kMaxNodes);
  simulation.autoscale = autoscale;
}

// Returns every name once, in the given order; "all" stands for all policies.
std::vector<std::string> chosen_policies(const std::vector<std::string>& arguments) {
  const std::vector<std::string_view> known = sched::policy_names();
  if (arguments.empty()) return {std::string(known.front())};
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const std::string& argument : arguments) {
    for (const std::string& name : split(argument, ',')) {
      if (name == "all")
        std::ranges::for_each(known, [&add](std::string_view one) { add(std::string(one)); });
      else
        add(name);
    }
  }
  return names;
}

}  // namespace

std::vector<sched::SimulationTask> SimulatePlan::tasks() const {
  std::vector<sched::SimulationTask> all;
  for (const sched::Workload& workload : workloads) {
    for (std::size_t i = 0; i < policies.size(); ++i) all.push_back({&workload, policies[i].get(), policy_names[i]});
  }
  return all;
}

std::vector<fs::path> workload_files(const std::vector<std::string>& arguments) {
  std::vector<fs::path> files;
  std::set<fs::path> seen;
  const auto add = [&](const fs::path& file) {
    if (seen.insert(fs::weakly_canonical(file)).second) files.push_back(file);
  };
  for (const std::string& argument : arguments) {
    std::error_code error;
    if (!fs::exists(argument, error))
      throw UsageError(fmt::format("simulate: cannot read workload '{}': {}", argument,
                                   error ? error.message() : "no such file or directory"));
    if (!fs::is_directory(argument)) {
      add(argument);
      continue;
    }
    std::vector<fs::path> inside;
    for (fs::recursive_directory_iterator at(argument, error), end; !error && at != end; at.increment(error)) {
      if (at->path().extension() == ".csv" && !at->is_directory()) inside.push_back(at->path());
    }
    if (error) throw UsageError(fmt::format("simulate: cannot read '{}': {}", argument, error.message()));
    if (inside.empty()) throw UsageError(fmt::format("simulate: no .csv file found in '{}'", argument));
    std::ranges::sort(inside, [](const fs::path& a, const fs::path& b) {
      return ::strverscmp(a.c_str(), b.c_str()) < 0;  // workload-2 before workload-10
    });
    std::ranges::for_each(inside, add);
  }
  return files;
}

std::vector<std::string> workload_names(const std::vector<fs::path>& files) {
  const auto name = [](const fs::path& file, int directories) {
    fs::path full = fs::weakly_canonical(file), text = full.stem();
    for (fs::path above = full.parent_path(); directories > 0 && above.has_filename(); --directories) {
      text = above.filename() / text;
      above = above.parent_path();
    }
    return text.string();
  };
  for (int directories = 0;; ++directories) {
    std::vector<std::string> names;
    bool deeper = false;
    for (const fs::path& file : files) {
      names.push_back(name(file, directories));
      deeper = deeper || name(file, directories + 1) != names.back();
    }
    const std::set<std::string> different(names.begin(), names.end());
    if (different.size() == names.size() || !deeper) return names;
  }
}

SimulatePlan make_plan(const SimulateOptions& options) {
  SimulatePlan plan;
  sched::SimulationOptions& simulation = plan.simulation;
  set_cluster(simulation, options);
  if (!options.interval.empty()) simulation.interval = parse_duration_seconds(options.interval, "--interval");
  if (!options.restart_cost.empty())
    simulation.restart_cost = parse_duration_seconds(options.restart_cost, "--restart-cost");
  if (!options.interference.empty()) simulation.interference = parse_real(options.interference, "--interference", 0, 1);
  sched::check(simulation);
  sched::PolicyOptions policy{.restart_cost = simulation.restart_cost};
  if (!options.fairness.empty()) policy.fairness = parse_fairness(options.fairness, "simulate: --fairness");
  if (!options.seed.empty())
    policy.seed = parse_number<std::uint64_t>(options.seed, "simulate: --seed", 0, UINT64_MAX, "an integer");
  if (!options.threads.empty())
    plan.threads = static_cast<unsigned>(parse_simulate_count(options.threads, "--threads", 1, kMaxThreads));
  plan.policy_names = chosen_policies(options.policies);
  for (const std::string& name : plan.policy_names) {
    try {
      plan.policies.push_back(sched::make_policy(name, policy));
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("simulate: {}", error.what()));
    }
  }
  const std::vector<fs::path> files = workload_files(options.workloads);
  const std::vector<std::string> names = workload_names(files);
  const fs::path known = installed_data("osdi21/traces");
  if (options.traces.empty() && known.empty())
    throw UsageError(
        "simulate: the measurements that come with adaptdl are missing; reinstall adaptdl, or use --traces DIR");
  try {
    const sched::Applications applications =
        sched::load_traces(options.traces.empty() ? known : fs::path(options.traces), known);
    for (std::size_t i = 0; i < files.size(); ++i) {
      plan.workloads.push_back(sched::load_workload(files[i], applications));
      plan.workloads.back().name = names[i];
    }
  } catch (const Error& error) {
    throw UsageError(error.what());  // the error is in the user's files
  }
  return plan;
}

}  // namespace adaptdl::cli
