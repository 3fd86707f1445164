#include "local/replica/replica_environment.h"

#include <doctest/doctest.h>

namespace replica_environment_test {

using namespace adaptdl::sched;

namespace {

LaunchPlan two_machines() {
  LaunchPlan plan;
  plan.job_id = "local/digits";
  plan.replicas = 3;
  plan.nodes = 2;
  plan.node_rank = 1;
  return plan;
}

}  // namespace

TEST_CASE("a replica's environment contains all variables of the contract") {
  LaunchPlan plan = two_machines();
  plan.checkpoints = "/c";
  plan.share = "/s";
  plan.settings = {{"ADAPTDL_BACKEND", "gloo"}};
  const Environment result = replica_environment(plan, {{"HOME", "/me"}},
                                                 {.rank = 5,
                                                  .size = 6,
                                                  .restarts = 4,
                                                  .master_host = "10.0.0.7",
                                                  .master_port = 4700,
                                                  .device = "",
                                                  .id = "4-2",
                                                  .generation = 7,
                                                  .supervisor_url = "http://127.0.0.1:1",
                                                  .supervisor_token = "t"},
                                                 12);
  const Environment expected = {{"HOME", "/me"},
                                {"ADAPTDL_BACKEND", "gloo"},
                                {"ADAPTDL_CHECKPOINT_PATH", "/c"},
                                {"ADAPTDL_GENERATION", "7"},
                                {"ADAPTDL_JOB_ID", "local/digits"},
                                {"ADAPTDL_MASTER_ADDR", "10.0.0.7"},
                                {"ADAPTDL_MASTER_PORT", "4700"},
                                {"ADAPTDL_NUM_NODES", "2"},
                                {"ADAPTDL_NUM_REPLICAS", "6"},
                                {"ADAPTDL_NUM_RESTARTS", "4"},
                                {"ADAPTDL_REPLICA_ID", "4-2"},
                                {"ADAPTDL_REPLICA_RANK", "5"},
                                {"ADAPTDL_SCHED_VERSION", "0.0.0"},
                                {"ADAPTDL_SHARE_PATH", "/s"},
                                {"ADAPTDL_SUPERVISOR_TOKEN", "t"},
                                {"ADAPTDL_SUPERVISOR_URL", "http://127.0.0.1:1"},
                                {"OMP_NUM_THREADS", "4"},
                                {"PYTHONUNBUFFERED", "1"}};
  CHECK(result == expected);
}

TEST_CASE("replicas on several machines get the job's token without a supervisor") {
  const Environment result = replica_environment(two_machines(), {}, {.supervisor_token = "t"}, 1);
  CHECK(result.at("ADAPTDL_SUPERVISOR_TOKEN") == "t");
  CHECK_FALSE(result.contains("ADAPTDL_SUPERVISOR_URL"));
}

TEST_CASE("another job's variables in the caller's environment are not passed to replicas") {
  const Environment caller = {{"ADAPTDL_CHECKPOINT_PATH", "/other"},
                              {"ADAPTDL_REPLICA_RANK", "7"},
                              {"ADAPTDL_SUPERVISOR_URL", "http://other"},
                              {"ADAPTDL_SCHED_VERSION", "0.2.0"},
                              {"ADAPTDL_STATUS_FD", "9"},
                              {"ADAPTDL_GENERATION", "3"},
                              {"ADAPTDL_REPLICA_ID", "x"},
                              {"ADAPTDL_SUPERVISOR_TOKEN", "secret"}};
  const Environment result = replica_environment({}, caller, {}, 1);
  CHECK(result.at("ADAPTDL_REPLICA_RANK") == "0");
  for (const char* name :
       {"ADAPTDL_CHECKPOINT_PATH", "ADAPTDL_SUPERVISOR_URL", "ADAPTDL_SCHED_VERSION", "ADAPTDL_STATUS_FD",
        "ADAPTDL_GENERATION", "ADAPTDL_REPLICA_ID", "ADAPTDL_SUPERVISOR_TOKEN"}) {
    CHECK_MESSAGE(!result.contains(name), name);
  }
}

TEST_CASE("Kubeflow's variables point to the supervisor unless they are already set") {
  LaunchPlan plan;
  plan.job_id = "local/a job";
  const ReplicaPlace place{
      .id = "2-1", .supervisor_url = "http://127.0.0.1:1", .supervisor_token = "t", .token_file = "/runs/a/token"};
  const std::string url = "KUBEFLOW_TRAINER_SERVER_URL", token = "KUBEFLOW_TRAINER_SERVER_TOKEN";
  Environment result = replica_environment(plan, {}, place, 1);
  CHECK(result.at(url) == "http://127.0.0.1:1/kubeflow/local/a%20job?replica=2-1");
  CHECK(result.at(token) == "/runs/a/token");
  for (const char* own : {"https://kubeflow/status", ""}) {
    result = replica_environment(plan, {{url, own}, {token, "/k"}}, place, 1);
    CHECK(result.at(url) == own);
    CHECK(result.at(token) == "/k");
  }
  plan.settings = {{url, "http://other"}};
  result = replica_environment(plan, {}, place, 1);
  CHECK(result.at(url) == "http://other");
  CHECK_FALSE(result.contains(token));
}

TEST_CASE("Kubeflow's variables of an enclosing replica are not passed on") {
  const std::string url = "KUBEFLOW_TRAINER_SERVER_URL", token = "KUBEFLOW_TRAINER_SERVER_TOKEN";
  const Environment outer = {{"ADAPTDL_SUPERVISOR_URL", "http://127.0.0.1:1"},
                             {url, "http://127.0.0.1:1/kubeflow/local/outer?replica=0-0"},
                             {token, "/outer"}};
  Environment result = replica_environment({}, outer, {}, 1);
  CHECK_FALSE(result.contains(url));
  CHECK_FALSE(result.contains(token));
  result = replica_environment({}, outer, {.id = "0-0", .supervisor_url = "http://127.0.0.1:2", .token_file = "/t"}, 1);
  CHECK(result.at(url) == "http://127.0.0.1:2/kubeflow/local/job?replica=0-0");
  CHECK(result.at(token) == "/t");
}

TEST_CASE("the caller's own settings take precedence over defaults") {
  const Environment caller = {{"OMP_NUM_THREADS", "7"},
                              {"PYTHONUNBUFFERED", ""},
                              {"ADAPTDL_CHECKPOINT_EVERY", "1h"},
                              {"ADAPTDL_SHARE_PATH", "/s"},
                              {"CUDA_VISIBLE_DEVICES", "1"}};
  const Environment result = replica_environment({}, caller, {}, 64);
  for (const auto& variable : caller) CHECK_MESSAGE(result.at(variable.first) == variable.second, variable.first);
}

TEST_CASE("every replica gets at least one thread and its own device") {
  LaunchPlan plan;
  plan.replicas = 4;
  const ReplicaPlace place{.device = "GPU-x"};
  const Environment result = replica_environment(plan, {}, place, 3);
  CHECK(result.at("OMP_NUM_THREADS") == "1");
  CHECK(result.at("CUDA_VISIBLE_DEVICES") == "GPU-x");
  plan.device_kind = DeviceKind::kCpu;
  CHECK(replica_environment(plan, {}, place, 3).at("CUDA_VISIBLE_DEVICES").empty());
}

TEST_CASE("the hang timeout is passed in milliseconds") {
  LaunchPlan plan;
  plan.hang_timeout = std::chrono::seconds(90);
  CHECK(replica_environment(plan, {}, {}, 1).at("ADAPTDL_COLLECTIVE_TIMEOUT") == "90000ms");
}

TEST_CASE("a setting overrides the caller's variable") {
  LaunchPlan plan;
  plan.settings = {{"OMP_NUM_THREADS", "2"}, {"X", "1"}, {"X", "2"}};
  const Environment result = replica_environment(plan, {{"OMP_NUM_THREADS", "7"}}, {}, 64);
  CHECK(result.at("OMP_NUM_THREADS") == "2");
  CHECK(result.at("X") == "2");
}

TEST_CASE("at least one core is usable") { CHECK(usable_cores() >= 1); }

TEST_CASE("requests to the local supervisor bypass the caller's proxy") {
  const auto no_proxy = [](Environment caller, const std::string& name) {
    const Environment result =
        replica_environment({}, caller, {.id = "0-0", .supervisor_url = "http://127.0.0.1:1"}, 1);
    return result.contains(name) ? result.at(name) : "";
  };
  CHECK(no_proxy({{"http_proxy", "http://p"}}, "no_proxy") == "127.0.0.1");
  CHECK(no_proxy({{"ALL_PROXY", "http://p"}, {"no_proxy", "a,b"}}, "no_proxy") == "a,b,127.0.0.1");
  CHECK(no_proxy({{"HTTP_PROXY", "http://p"}, {"NO_PROXY", "a"}}, "NO_PROXY") == "a,127.0.0.1");
  CHECK(no_proxy({{"HTTP_PROXY", "http://p"}, {"NO_PROXY", "a"}}, "no_proxy").empty());
  CHECK(no_proxy({{"http_proxy", "http://p"}, {"no_proxy", "*"}}, "no_proxy") == "*");
  CHECK(no_proxy({{"no_proxy", "a"}}, "no_proxy") == "a");
  CHECK(no_proxy({{"http_proxy", ""}}, "no_proxy").empty());
}

}  // namespace replica_environment_test
