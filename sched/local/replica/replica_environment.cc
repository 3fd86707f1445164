#include "local/replica/replica_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "protocol/supervisor_url.h"
#include "supervisor/supervisor.h"

namespace adaptdl::sched {
namespace {

constexpr const char* kKubeflowUrl = "KUBEFLOW_TRAINER_SERVER_URL";
constexpr const char* kKubeflowToken = "KUBEFLOW_TRAINER_SERVER_TOKEN";  // path of a file

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// Python's HTTP clients use a proxy even for this machine unless a variable excludes it.
void bypass_proxies(Environment& environment, const std::string& url) {
  const std::size_t begin = url.find("://") + 3;
  const std::string host = url.substr(begin, url.rfind(':') - begin);
  static constexpr const char* kProxies[] = {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"};
  const auto is_set = [&](const char* name) { return !value_of(environment, name).empty(); };
  if (std::ranges::none_of(kProxies, is_set)) return;
  bool has_list = false;
  for (const char* name : {"no_proxy", "NO_PROXY"}) {
    if (!is_set(name)) continue;
    has_list = true;
    if (environment[name] != "*") environment[name] += "," + host;
  }
  if (!has_list) environment["no_proxy"] = host;
}

// Lets Hugging Face's Trainer callback and Kubeflow's SDK report progress to the supervisor.
void report_by_kubeflow(Environment& environment, const std::string& job_id, const ReplicaPlace& place) {
  if (place.token_file.empty() || environment.contains(kKubeflowUrl)) return;
  environment[kKubeflowUrl] = supervisor::job_url(place.supervisor_url, "kubeflow", job_id) + "?replica=" + place.id;
  environment[kKubeflowToken] = place.token_file;
}

}  // namespace

Environment caller_environment() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos && equals > 0) result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

bool is_launchers_own(std::string_view name) {
  static constexpr std::string_view kOwn[] = {
      "ADAPTDL_CHECKPOINT_PATH", "ADAPTDL_JOB_ID",           "ADAPTDL_MASTER_ADDR",   "ADAPTDL_MASTER_PORT",
      "ADAPTDL_REPLICA_RANK",    "ADAPTDL_NUM_NODES",        "ADAPTDL_NUM_REPLICAS",  "ADAPTDL_NUM_RESTARTS",
      "ADAPTDL_SUPERVISOR_URL",  "ADAPTDL_SUPERVISOR_TOKEN", "ADAPTDL_SCHED_VERSION", "ADAPTDL_REPLICA_ID",
      "ADAPTDL_GENERATION",      "ADAPTDL_STATUS_FD",        "ADAPTDL_RELAY"};
  return std::ranges::find(kOwn, name) != std::end(kOwn);
}

Environment replica_environment(const LaunchPlan& plan, const Environment& caller, const ReplicaPlace& place,
                                unsigned cores) {
  Environment result = caller;
  // A run inside a replica inherits the URL to which the outer replica reports.
  const std::string outer = value_of(caller, "ADAPTDL_SUPERVISOR_URL");
  if (!outer.empty() && value_of(caller, kKubeflowUrl).starts_with(outer + "/kubeflow/")) {
    result.erase(kKubeflowUrl);
    result.erase(kKubeflowToken);
  }
  std::erase_if(result, [](const auto& entry) { return is_launchers_own(entry.first); });
  // Using more threads than cores is slower, and by default, libraries use all cores in each process.
  result.emplace("OMP_NUM_THREADS", fmt::format("{}", std::max(1u, cores / static_cast<unsigned>(plan.replicas))));
  // Python buffers output to a pipe, and loses the buffer when it is killed.
  result.emplace("PYTHONUNBUFFERED", "1");
  if (!place.device.empty()) {
    result["CUDA_VISIBLE_DEVICES"] = plan.device_kind == DeviceKind::kGpu ? place.device : "";
  }
  if (plan.share) result["ADAPTDL_SHARE_PATH"] = plan.share->string();
  if (plan.hang_timeout) result["ADAPTDL_COLLECTIVE_TIMEOUT"] = fmt::format("{}ms", plan.hang_timeout->count());
  for (const auto& [name, value] : plan.settings) result[name] = value;
  if (plan.checkpoints) result["ADAPTDL_CHECKPOINT_PATH"] = plan.checkpoints->string();
  result["ADAPTDL_JOB_ID"] = plan.job_id;
  result["ADAPTDL_MASTER_ADDR"] = place.master_host;
  result["ADAPTDL_MASTER_PORT"] = fmt::format("{}", place.master_port);
  result["ADAPTDL_REPLICA_RANK"] = fmt::format("{}", place.rank);
  result["ADAPTDL_NUM_NODES"] = fmt::format("{}", plan.nodes);
  result["ADAPTDL_NUM_REPLICAS"] = fmt::format("{}", place.size);
  result["ADAPTDL_NUM_RESTARTS"] = fmt::format("{}", place.restarts);
  if (!place.supervisor_token.empty()) result["ADAPTDL_SUPERVISOR_TOKEN"] = place.supervisor_token;
  if (place.id.empty()) return result;
  result["ADAPTDL_REPLICA_ID"] = place.id;
  result["ADAPTDL_GENERATION"] = fmt::format("{}", place.generation);
  bypass_proxies(result, place.supervisor_url);
  result["ADAPTDL_SUPERVISOR_URL"] = place.supervisor_url;
  report_by_kubeflow(result, plan.job_id, place);
  // The Python package rejects a scheduler whose major version differs from its own.
  result["ADAPTDL_SCHED_VERSION"] = kSchedVersion;
  return result;
}

std::vector<std::string> to_strings(const Environment& environment) {
  std::vector<std::string> strings;
  for (const auto& [name, value] : environment) strings.push_back(name + '=' + value);
  return strings;
}

std::vector<char*> to_pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

unsigned usable_cores() {
  unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");  // "QUOTA PERIOD" in microseconds, or "max PERIOD"
  double quota = 0, period = 0;
  if (quota_file >> quota >> period && quota > 0 && period > 0) {
    cores = std::clamp(static_cast<unsigned>(quota / period), 1u, cores);
  }
  return cores;
}

}  // namespace adaptdl::sched
