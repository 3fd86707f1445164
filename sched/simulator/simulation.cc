#include "simulator/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "adaptdl/error.h"
#include "simulator/summary.h"

namespace adaptdl::sched {
namespace {

// A simulation is considered stuck if no job has made progress for this many cycles and for the time of this many
// restarts.
constexpr int kMaxIdleCycles = 1000;
constexpr double kMaxIdleRestarts = 10;

bool same_replicas(Allocation a, Allocation b) {
  std::ranges::sort(a);
  std::ranges::sort(b);
  return a == b;
}

bool distributed(const Allocation& allocation) {
  return std::ranges::any_of(allocation, [&](const std::string& node) { return node != allocation.front(); });
}

}  // namespace

Simulation::Simulation(std::size_t index, const SimulationTask& task, const SimulationOptions& options,
                       SimulationObserver* observer)
    : index_(index), task_(task), options_(options), observer_(observer), cluster_(options) {
  for (const WorkloadJob& job : task.workload->jobs) {
    jobs_.emplace_back(job, task.policy->adapts_batch_size(), options.restart_cost);
  }
  reported_.resize(jobs_.size());
  progress_.resize(jobs_.size());
}

SimulationResult Simulation::run(const std::vector<const std::atomic<bool>*>& stop) {
  const auto stopped = [&] { return std::ranges::any_of(stop, [](const auto* flag) { return flag && *flag; }); };
  while (!completed() && !stopped()) {
    train();
    std::vector<SimulatedJob*> jobs;
    Allocations kept;
    for (SimulatedJob& job : jobs_) {
      if (!active(job)) continue;
      jobs.push_back(&job);
      if (auto allocation = allocations_.extract(job.workload_job().name)) kept.insert(std::move(allocation));
    }
    allocations_ = std::move(kept);
    Decision decision;
    if (!jobs.empty()) decision = schedule(jobs);
    if (observer_) record(decision);
    cluster_.resize(decision.desired_nodes, allocations_);
  }
  SimulationResult result = summarize(task_, options_, jobs_, cluster_.gpus(), node_seconds_);
  result.node_cost = node_cost_;
  result.stopped = !completed();
  if (observer_) observer_->finished(index_, result);
  return result;
}

bool Simulation::active(const SimulatedJob& job) const {
  return !job.completion_time() && job.workload_job().submission_time <= now_;
}

bool Simulation::completed() const {
  return std::ranges::all_of(jobs_, [](const SimulatedJob& job) { return job.completion_time().has_value(); });
}

// Returns the next cycle, counted in intervals. If no jobs are active, it is the first cycle at or after the next
// submission.
double Simulation::next_cycle() const {
  double submission = std::numeric_limits<double>::infinity();
  for (const SimulatedJob& job : jobs_) {
    if (job.completion_time()) continue;
    if (active(job)) return cycle_ + 1;
    submission = std::min(submission, job.workload_job().submission_time);
  }
  return std::max(cycle_ + 1, std::ceil(submission / options_.interval));
}

void Simulation::train() {
  const double next = next_cycle(), start = now_;
  const double seconds = (next - cycle_) * options_.interval;
  const std::set<std::string> contended =
      options_.interference > 0 ? Cluster::contended(allocations_) : std::set<std::string>();
  double first = std::numeric_limits<double>::infinity(), last = 0;
  for (SimulatedJob& job : jobs_) {
    if (const auto found = allocations_.find(job.workload_job().name); found != allocations_.end()) {
      const Allocation& nodes = found->second;
      const bool disturbed =
          distributed(nodes) && std::ranges::any_of(nodes, [&](const auto& node) { return contended.contains(node); });
      job.train(start, seconds, disturbed ? options_.interference : 0);
    }
    first = std::min(first, job.workload_job().submission_time);
    last = std::max(last, job.completion_time().value_or(next * options_.interval));
  }
  cycle_ = next;
  now_ = next * options_.interval;
  const double span = std::min(last, now_) - std::max(first, start);
  node_seconds_ += std::max(span, 0.0) * static_cast<double>(cluster_.nodes().size());
  node_cost_ += std::max(span, 0.0) / 3600 * cluster_.price();
}

Decision Simulation::schedule(const std::vector<SimulatedJob*>& jobs) {
  Problem problem{now_, {}, cluster_.nodes(), allocations_, cluster_.node_template()};
  for (const SimulatedJob* job : jobs) problem.jobs.push_back(describe(*job));
  Decision decision = task_.policy->optimize(problem, state_);
  state_ = decision.state;
  cluster_.check(decision.allocations, task_.policy_name);
  apply(decision, jobs);
  expect_progress(jobs, decision);
  return decision;
}

JobInfo Simulation::describe(const SimulatedJob& job) const {
  const WorkloadJob& origin = job.workload_job();
  JobInfo info;
  info.name = origin.name;
  info.resources = {{kGpu, 1}};
  info.max_replicas = job.max_replicas();
  info.creation_time = origin.submission_time;
  info.attained_service = job.attained_service();
  info.num_restarts = job.restarts();
  info.profiled_replicas = job.profiled_replicas();
  info.speedup = job.speedup();
  info.progress = job.progress();
  info.target_progress = job.target_progress();
  info.requested_replicas = origin.num_replicas;
  info.remaining_time = [&job, gpus = options_.groups.front().gpus](int replicas) {
    return job.remaining_time(replicas, gpus);
  };
  info.gpu_speed = cluster_.gpu_speed();
  return info;
}

void Simulation::apply(const Decision& decision, const std::vector<SimulatedJob*>& jobs) {
  static const Allocation nothing;
  Allocations next;
  for (SimulatedJob* job : jobs) {
    const std::string& name = job->workload_job().name;
    const auto decided = decision.allocations.find(name);
    const Allocation& allocation = decided == decision.allocations.end() ? nothing : decided->second;
    const auto before = allocations_.find(name);
    if (!same_replicas(allocation, before == allocations_.end() ? nothing : before->second)) {
      job->reallocate(Cluster::placement(allocation), cluster_.speed(allocation), cluster_.price(allocation));
      if (!allocation.empty()) next[name] = allocation;
    } else if (!allocation.empty()) {
      next[name] = before->second;
    }
  }
  allocations_ = std::move(next);
}

void Simulation::expect_progress(const std::vector<SimulatedJob*>& jobs, const Decision& decision) {
  ++idle_cycles_;
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    if (!(jobs_[i].progress() > progress_[i])) continue;
    progress_[i] = jobs_[i].progress();
    idle_cycles_ = 0;
  }
  if (idle_cycles_ < kMaxIdleCycles || idle_cycles_ * options_.interval < kMaxIdleRestarts * options_.restart_cost)
    return;
  const std::string& name = jobs.front()->workload_job().name;
  const auto reason = decision.reasons.find(name);
  throw Error(
      fmt::format("workload '{}' under policy '{}': no job has made progress for {} cycles (simulated time: {:.0f}s); "
                  "the policy's reason for job '{}': {}; use more nodes, or jobs that fit",
                  task_.workload->name, task_.policy_name, idle_cycles_, now_, name,
                  reason == decision.reasons.end() ? "none" : reason->second));
}

void Simulation::record(const Decision& decision) {
  CycleRecord record;
  record.task = index_;
  record.workload = task_.workload->name;
  record.policy = task_.policy_name;
  record.time = now_;
  record.nodes = cluster_.nodes();
  record.total = jobs_.size();
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const bool done = jobs_[i].completion_time().has_value();
    record.completed += done;
    if ((done && !reported_[i]) || active(jobs_[i])) record.jobs.push_back(this->record(jobs_[i], decision));
    reported_[i] = done;
  }
  if (!record.jobs.empty()) observer_->cycle(record);
}

CycleJob Simulation::record(const SimulatedJob& job, const Decision& decision) const {
  CycleJob result;
  result.name = job.workload_job().name;
  result.application = job.workload_job().application->name();
  result.submission_time = job.workload_job().submission_time;
  result.epoch = job.epoch();
  result.progress = job.progress() / job.target_progress();
  result.restarts = job.restarts();
  result.completion_time = job.completion_time();
  if (job.completion_time()) {
    result.state = JobState::kCompleted;
    return result;
  }
  if (const auto found = allocations_.find(result.name); found != allocations_.end()) {
    result.state = job.restarting() ? JobState::kRestarting : JobState::kRunning;
    result.allocation = found->second;
    result.batch_size = job.batch_size();
    result.accum_steps = job.accum_steps();
  }
  if (const auto reason = decision.reasons.find(result.name); reason != decision.reasons.end()) {
    result.reason = reason->second;
  }
  return result;
}

}  // namespace adaptdl::sched
