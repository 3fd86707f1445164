// Measures the time and memory of a scheduling cycle by policy, number of jobs and size of the cluster.
//
//   bench_scheduler_cycle           measures two typical sizes, and how the time grows with jobs and with nodes
//   bench_scheduler_cycle POLICY…   measures only these policies
//
// Each cycle is a new problem without remembered results; half of the jobs are running, and no speedup has been
// computed yet. Each row is measured in its own process, so that its peak memory is its own. plot_scheduler_cycle.py
// plots the table.
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "policy/policies.h"
#include "random_problem.h"

using namespace adaptdl::sched;

namespace {

constexpr double kPatience = 1.0;  // seconds: if a cycle takes longer at one size, larger sizes are skipped
constexpr double kEnough = 3.0;    // seconds that a row may take once it has kMinCycles cycles
constexpr int kMinCycles = 5, kMaxCycles = 100;

struct Row {
  double median = 0, p95 = 0;  // seconds
  double peak = 0;             // MB
};

Row measure(const std::string& name, const OrdinaryShape& shape) {
  const auto policy = make_policy(name, {});
  std::vector<double> seconds;
  double sum = 0;
  for (int cycle = 0; cycle < kMaxCycles && (cycle < kMinCycles || sum < kEnough); ++cycle) {
    std::mt19937_64 random(static_cast<std::uint64_t>(cycle));
    const Problem problem = ordinary_problem(random, shape);
    const auto began = std::chrono::steady_clock::now();
    const Decision decision = policy->optimize(problem, nullptr);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    sum += seconds.back();
  }
  std::ranges::sort(seconds);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {seconds[seconds.size() / 2], seconds[(seconds.size() * 95 + 99) / 100 - 1],
          static_cast<double>(usage.ru_maxrss) / 1024};
}

// Measures a row in a child process, and prints it.
Row print_row(const char* table, const std::string& name, const OrdinaryShape& shape) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    const Row row = measure(name, shape);
    _exit(write(ends[1], &row, sizeof row) == sizeof row ? 0 : 1);
  }
  close(ends[1]);
  Row row;
  const bool complete = child > 0 && read(ends[0], &row, sizeof row) == sizeof row;
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  if (!complete) throw std::runtime_error(fmt::format("{}: no measurement of {} jobs", name, shape.jobs));
  fmt::print("{:<6} {:<16} {:>5} {:>5} {:>4} {:>10.3f} {:>10.3f} {:>8.1f}\n", table, name, shape.jobs, shape.nodes,
             shape.gpus, row.median * 1e3, row.p95 * 1e3, row.peak);
  std::fflush(stdout);
  return row;
}

void print_growth(const char* table, const std::string& name, const std::vector<OrdinaryShape>& shapes) {
  for (const OrdinaryShape& shape : shapes)
    if (print_row(table, name, shape).median > kPatience) return;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty())
    for (const std::string_view name : policy_names()) names.emplace_back(name);
  try {
    fmt::print("{:<6} {:<16} {:>5} {:>5} {:>4} {:>10} {:>10} {:>8}\n", "table", "policy", "jobs", "nodes", "gpus",
               "median_ms", "p95_ms", "peak_mb");
    const OrdinaryShape small{160, 16, 4, 0.5}, large{2000, 256, 8, 0.5};
    for (const std::string& name : names) {
      const bool quick = print_row("size", name, small).median < kPatience / 10;
      if (quick) print_row("size", name, large);
    }
    for (const std::string& name : names) {
      print_growth("jobs", name,
                   {{10, 64, 8},
                    {20, 64, 8},
                    {40, 64, 8},
                    {80, 64, 8},
                    {160, 64, 8},
                    {320, 64, 8},
                    {640, 64, 8},
                    {1280, 64, 8},
                    {2560, 64, 8}});
      print_growth("nodes", name,
                   {{160, 4, 8},
                    {160, 8, 8},
                    {160, 16, 8},
                    {160, 32, 8},
                    {160, 64, 8},
                    {160, 128, 8},
                    {160, 256, 8},
                    {160, 512, 8},
                    {160, 1024, 8}});
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_scheduler_cycle: {}\n", error.what());
    return 1;
  }
}
