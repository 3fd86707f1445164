// Tests that policies reproduce the results of the Pollux paper, and that the adaptive policy outperforms them.
#include <doctest/doctest.h>

#include <map>
#include <tuple>

#include "policy/policies.h"
#include "sanitizer.h"
#include "simulator/csv.h"
#include "simulator/simulator.h"
#include "simulator_files.h"

namespace adaptdl::sched::paper_results_test {
namespace {

struct Published {
  double average = 0, p99 = 0;
};

// Returns the published results by policy, load and workload.
std::map<std::tuple<std::string, std::string, std::string>, Published> published() {
  const Csv csv(osdi21() / "published/average-jct.csv", {"policy", "load", "workload", "average_jct_s", "p99_jct_s"});
  std::map<std::tuple<std::string, std::string, std::string>, Published> results;
  for (std::size_t row = 0; row < csv.rows(); ++row) {
    results[{csv.text(row, "policy"), csv.text(row, "load"), csv.text(row, "workload")}] = {
        csv.number(row, "average_jct_s"), csv.number(row, "p99_jct_s")};
  }
  return results;
}

struct Comparison {
  std::vector<SimulationResult> simulated;
  std::vector<Published> published;  // results of the same workloads
};

// Simulates a policy on the workloads with published results of `reference`. `only` selects one workload,
// "LOAD/WORKLOAD", or those of one load, "LOAD/"; "" selects all.
Comparison compare(const std::string& policy_name, const std::string& reference, double restart_cost = 30,
                   const std::string& only = "") {
  const Applications applications = load_traces(osdi21() / "traces");
  const auto policy = make_policy(policy_name, {.restart_cost = restart_cost});
  Comparison comparison;
  std::vector<Workload> workloads;
  for (const auto& [key, values] : published()) {
    const auto& [name, load, workload] = key;
    if (name != reference || !(load + "/" + workload).starts_with(only)) continue;
    workloads.push_back(load_workload(osdi21() / "workloads" / ("load-" + load) / (workload + ".csv"), applications));
    comparison.published.push_back(values);
  }
  REQUIRE(workloads.size() == (only.empty() ? 16 : only.ends_with('/') ? 4 : 1));
  std::vector<SimulationTask> tasks;
  for (const Workload& workload : workloads) tasks.push_back({&workload, policy.get(), policy_name});
  SimulationOptions options;
  options.restart_cost = restart_cost;
  comparison.simulated = simulate(tasks, options);
  return comparison;
}

// Checks that each result is within a fraction of the published one.
void check_against_paper(const Comparison& comparison, double fraction) {
  for (std::size_t i = 0; i < comparison.simulated.size(); ++i) {
    CAPTURE(i);
    CHECK(comparison.simulated[i].average_jct == doctest::Approx(comparison.published[i].average).epsilon(fraction));
    CHECK(comparison.simulated[i].p99_jct == doctest::Approx(comparison.published[i].p99).epsilon(fraction));
  }
}

// Returns the ratio of the simulated to the published results, summed across all workloads.
Published ratio(const Comparison& comparison) {
  Published ours, theirs;
  for (std::size_t i = 0; i < comparison.simulated.size(); ++i) {
    ours.average += comparison.simulated[i].average_jct;
    ours.p99 += comparison.simulated[i].p99_jct;
    theirs.average += comparison.published[i].average;
    theirs.p99 += comparison.published[i].p99;
  }
  return {ours.average / theirs.average, ours.p99 / theirs.p99};
}

// Instrumented simulations take many times as long.
constexpr bool kSlow = sanitizer::kAddress;

TEST_CASE("Tiresias reproduces the paper's completion times to the printed precision") {
  check_against_paper(compare("tiresias", "tiresias", 30, kSlow ? "0.5/workload-6" : "1.0/"), 1e-4);
}

TEST_CASE("Tiresias reproduces the paper's completion times to the printed precision on every workload" *
          doctest::test_suite("full")) {
  check_against_paper(compare("tiresias", "tiresias"), 1e-4);
}

TEST_CASE("Optimus reproduces the paper's completion times within 2%") {
  check_against_paper(compare("optimus", "optimus", 30, kSlow ? "0.5/workload-6" : "0.5/"), 0.02);
}

TEST_CASE("Optimus reproduces the paper's completion times within 2% on every workload" * doctest::test_suite("full")) {
  check_against_paper(compare("optimus", "optimus"), 0.02);
}

TEST_CASE("Pollux's average completion time is within 5% of the paper's" * doctest::test_suite("full")) {
  CHECK(ratio(compare("pollux", "pollux")).average == doctest::Approx(1).epsilon(0.05));
}

TEST_CASE("the adaptive policy beats the paper's Pollux on average completion time for one workload" *
          doctest::skip(kSlow) * doctest::test_suite("slow")) {
  CHECK(ratio(compare("adaptive", "pollux", 30, "1.0/workload-6")).average < 0.95);
}

TEST_CASE("the adaptive policy beats the paper's Pollux on average and p99 completion time overall" *
          doctest::test_suite("full")) {
  const Published gain = ratio(compare("adaptive", "pollux"));
  CHECK(gain.average < 0.85);
  CHECK(gain.p99 < 1);
}

TEST_CASE("if restarts cost 1 s, the adaptive policy beats the paper's Pollux by over 20% on average completion time" *
          doctest::test_suite("full")) {
  CHECK(ratio(compare("adaptive", "pollux", 1)).average < 0.8);
}

}  // namespace
}  // namespace adaptdl::sched::paper_results_test
