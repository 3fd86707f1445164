#include "simulator/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace adaptdl::sched {
namespace {

// Returns the jobs' completion times, counted from their submission.
std::vector<double> completion_times(const std::vector<JobOutcome>& jobs) {
  std::vector<double> times;
  for (const JobOutcome& job : jobs) {
    if (job.completion_time) times.push_back(*job.completion_time - job.submission_time);
  }
  return times;
}

// Returns the largest ratio of a job's completion time to its alone_time. Sets alone_time of each completed job.
double finish_time_fairness(const SimulationTask& task, const SimulationOptions& options, int gpus, double mean_active,
                            std::vector<JobOutcome>& jobs) {
  const int share = std::max(static_cast<int>(std::ceil(gpus / std::max(mean_active, 1e-9) - 1e-8)), 1);
  std::map<const Application*, double> known;  // all jobs of an application have the same alone_time
  double worst = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!jobs[i].completion_time) continue;
    const WorkloadJob& job = task.workload->jobs[i];
    const auto [time, fresh] = known.emplace(job.application.get(), 0);
    if (fresh) time->second = alone_time(job, std::min(share, gpus), options.groups.front(), options);
    jobs[i].alone_time = time->second;
    const double taken = *jobs[i].completion_time - jobs[i].submission_time;
    if (jobs[i].alone_time > 0) worst = std::max(worst, taken / jobs[i].alone_time);
  }
  return worst;
}

}  // namespace

double nearest_rank(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double rank = std::ceil(fraction * static_cast<double>(values.size()) - 1e-9);
  return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

double alone_time(const WorkloadJob& job, int replicas, const NodeGroup& nodes, const SimulationOptions& options) {
  SimulatedJob alone(job, true, options.restart_cost);
  replicas = std::min(replicas, alone.max_replicas());
  std::vector<int> placement(static_cast<std::size_t>(replicas / nodes.gpus), nodes.gpus);
  if (replicas % nodes.gpus > 0) placement.push_back(replicas % nodes.gpus);
  alone.reallocate(placement, nodes.speed);
  for (double cycle = 0; !alone.completion_time(); ++cycle) {
    alone.train(cycle * options.interval, options.interval, 0);
  }
  return *alone.completion_time();
}

SimulationResult summarize(const SimulationTask& task, const SimulationOptions& options,
                           const std::vector<SimulatedJob>& jobs, int gpus, double node_seconds) {
  SimulationResult result;
  result.workload = task.workload->name;
  result.policy = task.policy_name;
  double first = std::numeric_limits<double>::infinity(), last = 0, gpu_seconds = 0, restarts = 0;
  for (const SimulatedJob& job : jobs) {
    const WorkloadJob& origin = job.workload_job();
    result.jobs.push_back({origin.name, origin.application->name(), origin.submission_time, job.completion_time(),
                           job.restarts(), job.attained_service(), 0, job.cost()});
    result.cost += job.cost();
    gpu_seconds += job.attained_service();
    first = std::min(first, origin.submission_time);
    last = std::max(last, job.completion_time().value_or(0));
    if (job.completion_time()) restarts += job.restarts();
  }
  const std::vector<double> times = completion_times(result.jobs);
  result.gpu_hours = gpu_seconds / 3600;
  result.node_hours = node_seconds / 3600;
  if (times.empty()) return result;
  const double sum = std::accumulate(times.begin(), times.end(), 0.0);
  const auto count = static_cast<double>(times.size());
  result.average_jct = sum / count;
  result.p50_jct = nearest_rank(times, 0.5);
  result.p99_jct = nearest_rank(times, 0.99);
  result.makespan = last - first;
  result.restarts_per_job = restarts / count;
  const double mean_active = result.makespan > 0 ? sum / result.makespan : 1;
  result.worst_ftf = finish_time_fairness(task, options, gpus, mean_active, result.jobs);
  return result;
}

}  // namespace adaptdl::sched
