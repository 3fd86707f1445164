// Simulates jobs of the Pollux paper's workloads on a cluster across the end of a month. The operator's ledgers must
// show the costs that the simulator computes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "kube/jobs/job_usage.h"
#include "kube/jobs/usage_ledger.h"
#include "operator/nodes/node_price.h"
#include "policy/policies.h"
#include "simulator/cluster.h"
#include "simulator/simulator.h"
#include "simulator_files.h"

namespace adaptdl::sched::operator_month_test {
namespace {

using doctest::Approx;
using kube::Month;
using kube::Time;
using kube::UsageLedger;
using kube::UsageRecord;
using kube::UsageSum;

constexpr double kDay = 86'400;
constexpr int kUsers = 3;

std::string user_of(std::size_t job) { return fmt::format("user-{}", job % kUsers); }

Time plus(Time time, double seconds) {
  return time + std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds));
}

// Returns the jobs of `count` days, each with the jobs of one workload file.
Workload days(int count, const std::string& load) {
  const Applications applications = load_traces(osdi21() / "traces");
  Workload month{"month", {}};
  for (int day = 0; day < count; ++day) {
    constexpr int kFiles[] = {1, 3, 5, 6};
    const auto file = fmt::format("workloads/load-{}/workload-{}.csv", load, kFiles[day % 4]);
    for (WorkloadJob job : load_workload(osdi21() / file, applications).jobs) {
      job.name = fmt::format("{}-{}", day, job.name);
      job.submission_time += day * kDay;
      month.jobs.push_back(std::move(job));
    }
  }
  return month;
}

// Does what the operator does in each cycle: it records the resources that each job holds in the job's status, and the
// statuses in the month's ledger. Users delete some of their jobs after they have ended.
class Accountant : public SimulationObserver {
 public:
  Accountant(const Workload& workload, const SimulationOptions& options, Time begin) : begin_(begin) {
    for (std::size_t i = 0; i < workload.jobs.size(); ++i) index_[workload.jobs[i].name] = i;
    for (const NodeGroup& group : options.groups)
      prices_.push_back({.labels = {{"type", group.gpu_type}}, .per_hour = group.price});
    ledgers_.emplace_back(Month::of(begin));
  }

  void cycle(const CycleRecord& record) override {
    const Time now = plus(begin_, record.time);
    std::map<std::string, NodeFacts> nodes;
    for (const NodeInfo& node : record.nodes) {
      NodeFacts facts;
      facts.labels = {{"type", node.gpu_type}};
      facts.allocatable = node.resources;
      nodes.emplace(node.name, facts);
    }
    for (const CycleJob& job : record.jobs) update(job, nodes, now);
    std::vector<UsageRecord> existing;
    for (const auto& [name, each] : jobs_) existing.push_back(each);
    if (Month::of(now) != ledgers_.back().month())
      ledgers_.push_back(ledgers_.back().close(Month::of(now), existing, deleted_));
    ledgers_.back().record(existing, deleted_, now);
    ledgers_.back() = UsageLedger::parse(ledgers_.back().month(), {{"data", ledgers_.back().data()}});
    std::erase_if(deleted_, [&](const UsageRecord& each) { return ledgers_.back().is_deleted(each.uid); });
    for (auto at = jobs_.begin(); at != jobs_.end();) {
      const bool deletes = ended_.contains(at->first) && random_() % 10 == 0;
      if (deletes) deleted_.push_back(at->second);
      at = deletes ? jobs_.erase(at) : std::next(at);
    }
  }
  void finished(std::size_t, const SimulationResult&) override {}

  // Returns the sums of the ledgers by user.
  std::map<std::string, UsageSum> by_user() const { return by_user(ledgers_.size()); }
  std::map<std::string, UsageSum> by_user(std::size_t months) const {
    std::map<std::string, UsageSum> sums;
    for (std::size_t i = 0; i < months; ++i) {
      for (const UsageSum& sum : ledgers_[i].sums(ledgers_[i].month().end())) sums[sum.user] += sum;
    }
    return sums;
  }
  std::size_t months() const { return ledgers_.size(); }
  std::size_t existing() const { return jobs_.size(); }

 private:
  void update(const CycleJob& job, const std::map<std::string, NodeFacts>& nodes, Time now) {
    UsageRecord& record = jobs_[job.name];
    if (record.uid.empty()) {
      record.uid = record.name = job.name;
      record.name_space = "team";
      record.user = user_of(index_.at(job.name));
    }
    if (job.completion_time) {
      record.usage.release(plus(begin_, *job.completion_time));
      ended_.insert(job.name);
      return;
    }
    const UsageRate rate = usage_rate({{kGpu, 1}}, job.allocation, nodes, prices_);
    if (job.allocation.empty())
      record.usage.release(now);
    else
      record.usage.hold(rate.gpus, rate.cost_per_hour, now);
  }

  const Time begin_;
  std::map<std::string, std::size_t> index_;
  std::vector<NodePrice> prices_;
  std::map<std::string, UsageRecord> jobs_;
  std::set<std::string> ended_;
  std::vector<UsageRecord> deleted_;
  std::vector<UsageLedger> ledgers_;
  std::mt19937 random_{1};
};

void check_month(const std::string& policy_name, int day_count, const std::string& load, double first_days,
                 const SimulationOptions& options) {
  CAPTURE(policy_name);
  const Workload workload = days(day_count, load);
  const Time begin = plus(Month::parse("2026-12")->begin(), -first_days * kDay);
  Accountant accountant(workload, options, begin);
  const auto policy = make_policy(policy_name, {});
  const SimulationTask task{&workload, policy.get(), policy_name};
  const SimulationResult result = simulate(std::span(&task, 1), options, &accountant).front();

  std::map<std::string, UsageSum> expected;
  for (std::size_t i = 0; i < result.jobs.size(); ++i) {
    REQUIRE(result.jobs[i].completion_time);
    UsageSum sum;
    sum.gpu_hours = result.jobs[i].gpu_seconds / 3600;
    sum.cost = result.jobs[i].cost;
    expected[user_of(i)] += sum;
  }
  const auto found = accountant.by_user();
  double cost = 0;
  REQUIRE(found.size() == kUsers);
  for (const auto& each : expected) {
    CAPTURE(each.first);
    const UsageSum& sum = found.at(each.first);
    CHECK(sum.gpu_hours == Approx(each.second.gpu_hours).epsilon(1e-6));
    CHECK(sum.cost.value() == Approx(each.second.cost.value()).epsilon(1e-6));
    cost += sum.cost.value();
  }
  CHECK(cost == Approx(result.cost).epsilon(1e-6));
  CHECK(result.cost > 0);
  CHECK(result.cost < result.node_cost);
  // The cost is divided between the two months.
  REQUIRE(accountant.months() == 2);
  for (const auto& [user, sum] : accountant.by_user(1)) {
    CHECK(sum.cost.value() > 0);
    CHECK(sum.cost.value() < expected.at(user).cost.value());
  }
  CHECK(accountant.existing() < workload.jobs.size());
}

const SimulationOptions kTwoTypes{.groups = {{.gpu_type = "t4", .nodes = 8, .gpus = 4, .speed = 1, .price = 3.06},
                                             {.gpu_type = "a100", .nodes = 2, .gpus = 8, .speed = 4, .price = 32.77}}};
const SimulationOptions kGrowing{.groups = {{.gpu_type = "t4", .gpus = 4, .price = 3.06}},
                                 .autoscale = Autoscale{1, 16}};

}  // namespace

TEST_CASE("ledgers match the simulator's costs for a simulated day") {
  check_month("tiresias", 1, "0.5", 0.1, kTwoTypes);
}

TEST_CASE("ledgers match the simulator's costs for a simulated month" * doctest::test_suite("full")) {
  check_month("tiresias", 2, "0.5", 0.1, kTwoTypes);
  check_month("pollux-released", 2, "0.5", 1.1, kGrowing);
  check_month("adaptive", 30, "1.0", 15, kGrowing);
  check_month("sia", 30, "1.0", 15, kTwoTypes);
}

}  // namespace adaptdl::sched::operator_month_test
