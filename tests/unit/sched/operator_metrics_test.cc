// Tests the operator's metrics: their values, and Prometheus' text format.
#include "operator/cluster/metrics.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

namespace operator_metrics_test {

using namespace adaptdl::sched;
using adaptdl::kube::parse_time;
using adaptdl::kube::Time;
using nlohmann::json;

namespace {

const Time kNow = *parse_time("2026-11-21T12:10:00Z");

json make_job(const std::string& name, const json& status = json::object()) {
  return {{"metadata",
           {{"namespace", "ns"},
            {"name", name},
            {"uid", name},
            {"resourceVersion", "1"},
            {"creationTimestamp", "2026-11-21T12:00:00Z"}}},
          {"spec",
           {{"maxReplicas", 8},
            {"template",
             {{"spec",
               {{"containers", {{{"name", "main"}, {"resources", {{"limits", {{"gpu", 1}, {"cpu", "500m"}}}}}}}}}}}}}},
          {"status", status}};
}

json make_pod(const std::string& name, const std::string& job, const std::string& node) {
  json pod{
      {"metadata", {{"namespace", "ns"}, {"name", name}, {"uid", name}, {"resourceVersion", "1"}}},
      {"spec", {{"nodeName", node}, {"containers", {{{"name", "main"}, {"resources", {{"limits", {{"gpu", 2}}}}}}}}}},
      {"status", {{"phase", "Running"}}}};
  if (job.empty()) return pod;
  pod["metadata"]["labels"] = {{"adaptdl", "true"}};
  pod["metadata"]["ownerReferences"] = {
      {{"apiVersion", "adaptdl.petuum.com/v1"}, {"kind", "AdaptDLJob"}, {"name", job}, {"uid", job}}};
  return pod;
}

json make_node(const std::string& name, bool ready = true, const json& spec = json::object()) {
  return {{"metadata", {{"name", name}}},
          {"spec", spec},
          {"status",
           {{"allocatable", {{"gpu", 8}, {"cpu", "4"}}},
            {"conditions", {{{"type", "Ready"}, {"status", ready ? "True" : "False"}}}}}}};
}

bool has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("a histogram's buckets are cumulative and include their upper bounds") {
  Histogram histogram({1, 2.5});
  for (const double value : {0.5, 1.0, 1.5, 2.5, 100.0}) histogram.observe(value);
  PrometheusText text;
  text.begin("x_seconds", "histogram", "Help.");
  text.add({{"a", "b"}}, histogram);
  CHECK(text.text() ==
        "# HELP x_seconds Help.\n# TYPE x_seconds histogram\n"
        "x_seconds_bucket{a=\"b\",le=\"1\"} 2\nx_seconds_bucket{a=\"b\",le=\"2.5\"} "
        "4\nx_seconds_bucket{a=\"b\",le=\"+Inf\"} 5\n"
        "x_seconds_sum{a=\"b\"} 105.5\nx_seconds_count{a=\"b\"} 5\n");
}

TEST_CASE("label values are escaped, and infinities and NaN are written by name") {
  PrometheusText text;
  text.begin("x", "gauge", "Help.");
  text.add({{"a", "\\ \" \n"}}, std::numeric_limits<double>::infinity());
  text.add({}, -std::numeric_limits<double>::infinity());
  text.add({{"a", ""}, {"b", "é"}}, std::numeric_limits<double>::quiet_NaN());
  CHECK(text.text() == "# HELP x Help.\n# TYPE x gauge\nx{a=\"\\\\ \\\" \\n\"} +Inf\nx -Inf\nx{a=\"\",b=\"é\"} NaN\n");
}

TEST_CASE("jobs are counted by phase, waiting jobs by reason, and replicas and nodes are counted by job") {
  ClusterState state;
  state.put_job(make_job("new"));
  state.put_job(make_job("waiting", {{"phase", "Pending"}, {"reason", "Waiting"}}));
  state.put_job(make_job("two", {{"phase", "Running"}, {"allocation", {"a", "a", "b"}}, {"replicas", 3}}));
  json suspended = make_job("suspended", {{"phase", "Suspended"}, {"reason", "Suspended"}});
  suspended["spec"]["suspend"] = true;
  state.put_job(suspended);
  state.put_job(make_job("done", {{"phase", "Succeeded"}, {"allocation", json::array()}}));
  const std::string text = OperatorMetrics().text(state, state.cluster({}, kNow));
  CHECK(has(text, "adaptdl_jobs{phase=\"Pending\"} 2"));
  CHECK(has(text, "adaptdl_jobs{phase=\"Running\"} 1"));
  CHECK(has(text, "adaptdl_jobs{phase=\"Succeeded\"} 1"));
  CHECK(has(text, "adaptdl_jobs{phase=\"Failed\"} 0"));
  CHECK(has(text, "adaptdl_jobs{phase=\"Suspended\"} 1"));
  CHECK(text.find("reason=\"Suspended\"") == std::string::npos);  // a suspended job is not waiting
  CHECK(has(text, "adaptdl_jobs_waiting{reason=\"New\"} 1"));
  CHECK(has(text, "adaptdl_jobs_waiting{reason=\"Waiting\"} 1"));
  CHECK(has(text, "adaptdl_job_replicas{job_namespace=\"ns\",job_name=\"two\"} 3"));
  CHECK(has(text, "adaptdl_job_nodes{job_namespace=\"ns\",job_name=\"two\"} 2"));
  CHECK(text.find("job_name=\"done\"") == std::string::npos);
  CHECK(text.find("adaptdl_job_goodput{") == std::string::npos);  // nothing has been measured
}

TEST_CASE("nodes are counted by state, and resources by holder") {
  ClusterState state;
  state.put_node(make_node("a"));
  state.put_node(make_node("b", true, {{"unschedulable", true}}));
  state.put_node(make_node("c", false));
  state.put_job(make_job("job", {{"phase", "Running"}, {"allocation", {"a", "a"}}}));
  state.put_pod(make_pod("p0", "job", "a"));
  state.put_pod(make_pod("p1", "job", "a"));
  state.put_pod(make_pod("other", "", "b"));
  const std::string text = OperatorMetrics().text(state, state.cluster({}, kNow));
  CAPTURE(text);
  for (const char* node : {"ready", "closed", "not-ready"})
    CHECK(has(text, std::string("adaptdl_nodes{state=\"") + node + "\"} 1"));
  CHECK(has(text, "adaptdl_allocatable{resource=\"gpu\"} 16"));
  CHECK(has(text, "adaptdl_allocatable{resource=\"cpu\"} 8"));
  CHECK(has(text, "adaptdl_allocated{resource=\"gpu\"} 4"));  // as requested by the pods, independent of the template
  CHECK(has(text, "adaptdl_allocated{resource=\"pods\"} 2"));
  CHECK(has(text, "adaptdl_used_by_others{resource=\"gpu\"} 2"));
}

TEST_CASE("a suspension is not counted as a restart") {
  OperatorMetrics metrics;
  const json running = make_job("job", {{"phase", "Running"}, {"reason", "Allocated"}}),
             stopping = make_job("job", {{"phase", "Stopping"}, {"reason", "Suspended"}}),
             suspended = make_job("job", {{"phase", "Suspended"}, {"reason", "Suspended"}});
  metrics.status_written(running, stopping);
  metrics.status_written(stopping, suspended);
  metrics.status_written(make_job("other"), suspended);
  const std::string text = metrics.text(ClusterState(), {});
  CHECK(text.find("adaptdl_job_restarts_total{") == std::string::npos);
  CHECK(has(text, "adaptdl_job_submissions_total 1"));
  CHECK(has(text, "adaptdl_job_completion_seconds_count 0"));
}

TEST_CASE("submissions, restarts and completions are counted once, when the phase changes") {
  OperatorMetrics metrics;
  const json fresh = make_job("job"), starting = make_job("job", {{"phase", "Starting"}, {"reason", "Allocated"}}),
             stopping = make_job("job", {{"phase", "Stopping"}, {"reason", "NodeLost"}}),
             failed = make_job(
                 "job",
                 {{"phase", "Failed"}, {"reason", "OOMKilled"}, {"completionTimestamp", "2026-11-21T12:05:00+00:00"}});
  metrics.status_written(fresh, starting);
  metrics.status_written(starting, starting);
  metrics.status_written(starting, stopping);
  metrics.status_written(stopping, stopping);
  metrics.status_written(stopping, failed);
  metrics.status_written(failed, failed);
  metrics.cycle_ended(std::chrono::milliseconds(20), kNow);
  const std::string text = metrics.text(ClusterState(), {});
  CHECK(has(text, "adaptdl_job_submissions_total 1"));
  CHECK(has(text, "adaptdl_job_restarts_total{reason=\"NodeLost\"} 1"));
  CHECK(has(text, "adaptdl_job_completions_total{phase=\"Failed\",reason=\"OOMKilled\"} 1"));
  CHECK(has(text, "adaptdl_job_completion_seconds_sum 300"));
  CHECK(has(text, "adaptdl_job_completion_seconds_bucket{le=\"60\"} 0"));
  CHECK(has(text, "adaptdl_job_completion_seconds_bucket{le=\"300\"} 1"));
  CHECK(has(text, "adaptdl_cycle_seconds_count 1"));
  CHECK(has(text, "adaptdl_cycle_seconds_bucket{le=\"0.01\"} 0"));
  CHECK(has(text, "adaptdl_cycle_seconds_bucket{le=\"0.05\"} 1"));
  CHECK(has(text, "adaptdl_last_cycle_timestamp_seconds 1795263000"));
}

}  // namespace operator_metrics_test
