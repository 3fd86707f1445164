#include "operator/cluster/metrics.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "kube/api/json_fields.h"
#include "kube/jobs/job.h"

namespace adaptdl::sched {
namespace {

using kube::text_field;
using nlohmann::json;

constexpr std::array kPhases = {"Pending", "Starting", "Running", "Stopping", "Suspended", "Succeeded", "Failed"};

std::string phase_of(const json& job) { return text_field(job, {"status", "phase"}); }
bool is_end(const std::string& phase) { return phase == "Succeeded" || phase == "Failed"; }

double seconds_since_1970(kube::Time time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

void add_resources(PrometheusText& text, const Resources& resources) {
  for (const auto& [resource, value] : resources)
    text.add({{"resource", resource}}, in_kubernetes_units(resource, value));
}

void add_operator(PrometheusText& text, bool leads) {
  text.begin("adaptdl_operator_info", "gauge", "Version of the operator.");
  text.add({{"version", ADAPTDL_VERSION}}, 1);
  text.begin("adaptdl_operator_leads", "gauge",
             "Whether this operator is the leader, which schedules jobs; 0 if it waits to replace the leader.");
  text.add({}, leads ? 1 : 0);
}

void add_phases(PrometheusText& text, const ClusterState& state) {
  std::map<std::string, double> phases, reasons;
  for (const std::string& key : state.jobs()) {
    const auto view = state.job(key);
    if (!view) continue;
    const std::string phase = phase_of(view->job);
    ++phases[phase.empty() ? "Pending" : phase];
    if (phase.empty() || phase == "Pending") {
      const std::string reason = text_field(view->job, {"status", "reason"});
      ++reasons[reason.empty() ? "New" : reason];
    }
  }
  text.begin("adaptdl_jobs", "gauge", "Number of jobs by phase.");
  for (const char* phase : kPhases) text.add({{"phase", phase}}, phases[phase]);
  text.begin("adaptdl_jobs_waiting", "gauge", "Number of jobs without nodes, by the reason in their status.");
  for (const auto& [reason, count] : reasons) text.add({{"reason", reason}}, count);
}

void add_jobs(PrometheusText& text, const AllocatorCluster& cluster) {
  const auto add = [&](const AllocatorJob& job, double value) {
    const std::string_view name = job.info.name;
    const std::size_t slash = name.find('/');
    text.add({{"job_namespace", name.substr(0, slash)}, {"job_name", name.substr(slash + 1)}}, value);
  };
  std::vector<const AllocatorJob*> jobs;
  for (const AllocatorJob& job : cluster.jobs) {
    if (!job.current.empty()) jobs.push_back(&job);
  }
  text.begin("adaptdl_job_replicas", "gauge", "Number of replicas that are allocated to a job.");
  for (const AllocatorJob* job : jobs) add(*job, static_cast<double>(job->current.size()));
  text.begin("adaptdl_job_nodes", "gauge", "Number of nodes that are allocated to a job.");
  for (const AllocatorJob* job : jobs) add(*job, static_cast<double>(count_nodes(job->current)));
  text.begin("adaptdl_job_goodput", "gauge",
             "Predicted samples per second of a job, weighted by statistical efficiency. Only for jobs that "
             "have been measured.");
  for (const AllocatorJob* job : jobs) {
    if (const auto goodput = goodput_of(*job)) add(*job, *goodput);
  }
}

void add_nodes(PrometheusText& text, const AllocatorCluster& cluster) {
  double ready = 0, closed = 0;
  Resources allocatable, used, others;
  for (const NodeFacts& node : cluster.nodes) {
    if (!node.ready) continue;
    ++(accepts_pods(node) ? ready : closed);
    allocatable += node.allocatable;
  }
  for (const AllocatorJob& job : cluster.jobs) {
    for (const auto& [node, requests] : job.requests) used += requests;
  }
  for (const auto& [node, held] : cluster.used) others += held;
  text.begin("adaptdl_nodes", "gauge", "Number of nodes by state. Closed nodes are cordoned or about to be removed.");
  text.add({{"state", "ready"}}, ready);
  text.add({{"state", "closed"}}, closed);
  text.add({{"state", "not-ready"}}, static_cast<double>(cluster.nodes.size()) - ready - closed);
  text.begin("adaptdl_allocatable", "gauge", "Resources of the ready and closed nodes, in Kubernetes units.");
  add_resources(text, allocatable);
  text.begin("adaptdl_allocated", "gauge", "Resources that the pods of jobs request, in Kubernetes units.");
  add_resources(text, used);
  text.begin("adaptdl_used_by_others", "gauge", "Resources that all other pods request, in Kubernetes units.");
  add_resources(text, others);
}

}  // namespace

void OperatorMetrics::status_written(const json& before, const json& after) {
  const std::string from = phase_of(before), to = phase_of(after), reason = text_field(after, {"status", "reason"});
  if (from == to) return;
  const std::lock_guard lock(mutex_);
  if (from.empty()) ++submissions_;
  if (to == "Stopping" && reason != "Suspended") ++restarts_[reason];
  if (!is_end(to)) return;
  ++completions_[{to, reason}];
  const auto created = kube::time_field(after, {"metadata", "creationTimestamp"});
  const auto ended = kube::time_field(after, {"status", "completionTimestamp"});
  if (created && ended)
    completion_times_.observe(std::max(0.0, std::chrono::duration<double>(*ended - *created).count()));
}

void OperatorMetrics::cycle_ended(std::chrono::duration<double> time, kube::Time now) {
  const std::lock_guard lock(mutex_);
  cycles_.observe(time.count());
  last_cycle_ = seconds_since_1970(now);
}

void OperatorMetrics::pool_sized(const PoolDecision& decision) {
  const std::lock_guard lock(mutex_);
  pool_ = decision;
}

std::string OperatorMetrics::text(const ClusterState& state, const AllocatorCluster& cluster) const {
  PrometheusText text;
  add_operator(text, true);
  add_counters(text);
  add_phases(text, state);
  add_jobs(text, cluster);
  add_nodes(text, cluster);
  return text.text();
}

std::string OperatorMetrics::standby_text() {
  PrometheusText text;
  add_operator(text, false);
  return text.text();
}

void OperatorMetrics::add_counters(PrometheusText& text) const {
  const std::lock_guard lock(mutex_);
  text.begin("adaptdl_job_submissions_total", "counter", "Number of new jobs.");
  text.add({}, submissions_);
  text.begin("adaptdl_job_restarts_total", "counter", "Number of times that jobs were asked to restart.");
  for (const auto& [reason, count] : restarts_) text.add({{"reason", reason}}, count);
  text.begin("adaptdl_job_completions_total", "counter", "Number of jobs that have ended.");
  for (const auto& [end, count] : completions_) text.add({{"phase", end.first}, {"reason", end.second}}, count);
  text.begin("adaptdl_job_completion_seconds", "histogram", "Time from the creation of a job to its end.");
  text.add({}, completion_times_);
  text.begin("adaptdl_cycle_seconds", "histogram", "Duration of scheduling cycles.");
  text.add({}, cycles_);
  text.begin("adaptdl_last_cycle_timestamp_seconds", "gauge", "When the last scheduling cycle of this operator ended.");
  if (last_cycle_) text.add({}, *last_cycle_);
  if (!pool_) return;
  text.begin("adaptdl_pool_nodes", "gauge", "Number of ready nodes in the group that the operator resizes.");
  text.add({}, pool_->nodes);
  text.begin("adaptdl_pool_desired_nodes", "gauge", "Number of nodes that the operator requests for this group.");
  text.add({}, pool_->desired_nodes);
  text.begin("adaptdl_pool_utility", "gauge",
             "Speedup of all jobs, divided by the speedup of jobs that scale perfectly on these nodes.");
  if (pool_->utility) text.add({}, *pool_->utility);
}

}  // namespace adaptdl::sched
