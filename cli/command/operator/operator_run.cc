#include "command/operator/operator_run.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "command/base/cluster_options.h"
#include "command/base/numbers.h"
#include "command/base/stop_signals.h"
#include "image/registry/reference.h"
#include "kube/api/json_fields.h"
#include "kube/api/quantity.h"
#include "kube/api/yaml_documents.h"
#include "operator/cluster/operator.h"
#include "protocol/secret.h"

namespace adaptdl::cli {
namespace {

using nlohmann::json;
using std::chrono::seconds;

struct OperatorRunOptions {
  ClusterOptions cluster;
  sched::OperatorOptions run;
  std::string port = "8080", metrics_port, lease, pod, service, validator, validator_port = "8443",
              certificate_lifetime = "90d", supervisor_url, policy, interval = "1m", restart_cost = "30s";
  std::string job_resources, pod_patch, container_patch, drain_taints, drain_conditions, node_prices;
  std::string usage, expander, min_nodes = "0", max_nodes = "0", node_resources, max_cost_per_hour = "0",
                               min_utility = "0.35", max_utility = "0.65";
  std::string unschedulable_timeout = "10m", start_timeout = "10m";
  bool live_rescale = false;
};

// Parses an option's value as YAML or JSON. Returns null if the text is empty.
json parse_value(const std::string& text, const std::string& option) {
  return kube::parse_yaml_document(text, "operator run: " + option).value;
}

json parse_setting(const std::string& text, const std::string& option, bool list) {
  const json value = parse_value(text, option);
  if (value.is_null()) return json::object();
  if (value.is_object() || (list && value.is_array())) return value;
  throw UsageError(fmt::format("operator run: {} expects {} in YAML or JSON", option,
                               list ? "a merge patch or a JSON patch" : "an object"));
}

std::vector<sched::NodePrice> parse_prices(const std::string& text, const std::string& option) {
  const json value = parse_value(text, option);
  if (value.is_null()) return {};
  return sched::parse_node_prices(value, "operator run: " + option);
}

// Empty text leaves `list` unchanged.
void parse_list(const std::string& text, const std::string& option, std::vector<std::string>& list) {
  const json value = parse_value(text, option);
  if (value.is_null()) return;
  if (!value.is_array() || !std::ranges::all_of(value, &json::is_string))
    throw UsageError(fmt::format("operator run: {} expects a list of strings in YAML or JSON", option));
  list = value.get<std::vector<std::string>>();
}

seconds parse_seconds(const std::string& text, const char* option) {
  return std::chrono::ceil<seconds>(env::parse_duration(text, fmt::format("operator run: {}", option)));
}

// Splits NAMESPACE/NAME.
std::pair<std::string, std::string> parse_name(const std::string& text, const char* option) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size())
    throw UsageError(fmt::format("operator run: {} expects NAMESPACE/NAME, got '{}'", option, text));
  return {text.substr(0, slash), text.substr(slash + 1)};
}

// Returns why an image name is invalid, or "" if it is valid.
std::string image_fault(const std::string& name) {
  try {
    image::Reference::parse(name);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

sched::ValidatorSettings validator_settings(const OperatorRunOptions& options) {
  sched::ValidatorSettings settings;
  settings.address = options.run.address;
  settings.port =
      parse_number<std::uint16_t>(options.validator_port, "operator run: --validator-port", 0, 65535, "a port");
  std::tie(settings.name_space, settings.name) = parse_name(options.validator, "--validator");
  settings.certificate_lifetime = parse_seconds(options.certificate_lifetime, "--validator-certificate-lifetime");
  if (settings.certificate_lifetime < settings.kMinLifetime)
    throw UsageError(fmt::format("operator run: --validator-certificate-lifetime must be at least {}s",
                                 settings.kMinLifetime.count()));
  settings.image_fault = image_fault;
  return settings;
}

// Helm passes fractions given with --set as strings, which the chart quotes.
std::string unquoted(const std::string& text) {
  const bool quoted = text.size() > 2 && text.front() == '"' && text.back() == '"';
  return quoted ? text.substr(1, text.size() - 2) : text;
}

sched::ExpanderSettings expander_settings(const OperatorRunOptions& options) {
  sched::ExpanderSettings settings;
  std::tie(settings.name_space, settings.name) = parse_name(options.expander, "--expander");
  sched::NodePool& pool = settings.pool;
  constexpr int kMaxNodes = 100'000;
  pool.min_nodes = parse_number<int>(options.min_nodes, "operator run: --min-nodes", 0, kMaxNodes, "an integer");
  pool.max_nodes = parse_number<int>(options.max_nodes, "operator run: --max-nodes", 0, kMaxNodes, "an integer");
  if (pool.min_nodes > pool.max_nodes)
    throw UsageError(fmt::format("operator run: --min-nodes must be at most --max-nodes ({}), got {}", pool.max_nodes,
                                 pool.min_nodes));
  const json resources = parse_setting(options.node_resources, "--node-resources", false);
  for (const auto& [name, amount] : resources.items()) {
    try {
      kube::Quantity::parse(amount.is_string() ? amount.get<std::string>() : nlohmann::to_string(amount));
    } catch (const Error& error) {
      throw UsageError(fmt::format("operator run: --node-resources: {}: {}", name, error.what()));
    }
  }
  pool.node_resources = sched::parse_node({{"status", {{"allocatable", resources}}}}).allocatable;
  const auto max_cost = parse_number<double>(unquoted(options.max_cost_per_hour), "operator run: --max-cost-per-hour",
                                             0, 1e12, "a number");
  if (max_cost > 0) {
    if (parse_prices(options.node_prices, "--node-prices").empty())
      throw UsageError("operator run: --max-cost-per-hour requires --node-prices");
    pool.max_cost_per_hour = max_cost;
  }
  return settings;
}

sched::UtilityRange utility_range(const OperatorRunOptions& options) {
  sched::UtilityRange range;
  range.lowest = parse_number<double>(unquoted(options.min_utility), "operator run: --min-utility", 0, 1, "a number");
  range.highest = parse_number<double>(unquoted(options.max_utility), "operator run: --max-utility", 0, 1, "a number");
  if (range.lowest >= range.highest)
    throw UsageError(fmt::format("operator run: --min-utility must be less than --max-utility ({}), got {}",
                                 range.highest, range.lowest));
  return range;
}

// Returns the URL at which pods reach this supervisor. It contains the service's IP address, because not every cluster
// resolves service names.
std::string service_url(kube::Client& client, const std::string& service) {
  const auto [name_space, name] = parse_name(service, "--service");
  const json object = client.get(kube::path(kube::kServices, name_space, name));
  const std::string address = kube::text_field(object, {"spec", "clusterIP"});
  const auto& ports = kube::array_field(object, {"spec", "ports"});
  if (address.empty() || address == "None" || ports.empty())
    throw Error(fmt::format("service '{}' has no cluster IP or no port; use --supervisor-url", service));
  const int port = kube::int_field(ports.front(), {"port"}).value_or(80);
  const bool v6 = address.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", address, v6 ? "]" : "", port);
}

// The descriptor limit must be high, because every replica that is waiting for its peers keeps a connection open.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void run(OperatorRunOptions& options) {
  sched::OperatorOptions& run = options.run;
  run.port = parse_number<std::uint16_t>(options.port, "operator run: --port", 0, 65535, "a port");
  if (!options.metrics_port.empty())
    run.metrics_port =
        parse_number<std::uint16_t>(options.metrics_port, "operator run: --metrics-port", 0, 65535, "a port");
  run.policy = options.policy;
  run.interval = env::parse_duration(options.interval, "operator run: --interval");
  if (run.interval < seconds(1)) throw UsageError("operator run: --interval must be at least 1s");
  run.policy_options.restart_cost = static_cast<double>(parse_seconds(options.restart_cost, "--restart-cost").count());
  run.lifecycle.unschedulable_timeout = parse_seconds(options.unschedulable_timeout, "--unschedulable-timeout");
  run.lifecycle.start_timeout = parse_seconds(options.start_timeout, "--start-timeout");
  if (run.lifecycle.start_timeout < seconds(1)) throw UsageError("operator run: --start-timeout must be at least 1s");
  run.lifecycle.live_rescale = run.pods.live_rescale = options.live_rescale;
  run.pods.resources = parse_setting(options.job_resources, "--job-resources", false);
  run.pods.pod_patch = parse_setting(options.pod_patch, "--pod-patch", true);
  run.pods.container_patch = parse_setting(options.container_patch, "--container-patch", true);
  if (!options.pod.empty()) run.pod = parse_name(options.pod, "--pod");
  if (!options.lease.empty()) {
    const auto [name_space, name] = parse_name(options.lease, "--lease");
    run.lease = {.name_space = name_space,
                 .name = name,
                 .identity = run.pod.second.empty() ? "adaptdl-" + make_secret().substr(0, 16) : run.pod.second};
    // Another operator may act from now on, so this one must not complete anything that it has begun.
    run.lease_lost = [] { std::_Exit(1); };
  }
  if (!options.validator.empty()) run.validator = validator_settings(options);
  run.lifecycle.prices = parse_prices(options.node_prices, "--node-prices");
  if (!options.usage.empty()) run.usage = parse_name(options.usage, "--usage");
  if (!options.expander.empty()) {
    run.expander = expander_settings(options);
    run.policy_options.utility = utility_range(options);
    if (run.expander->pool.max_nodes == 0) run.expander.reset();
  }
  parse_list(options.drain_taints, "--drain-taints", run.drain.taints);
  parse_list(options.drain_conditions, "--drain-conditions", run.drain.conditions);
  raise_descriptor_limit();
  const StopSignals signals([] {});
  kube::Client client(require_cluster(options.cluster));
  run.pods.supervisor_url = options.supervisor_url;
  if (run.pods.supervisor_url.empty() && !options.service.empty())
    run.pods.supervisor_url = service_url(client, options.service);
  sched::Operator(client, run).run(signals.token());
}

void add_scheduling_options(CLI::App& app, OperatorRunOptions& options) {
  app.add_option("--context", options.cluster.context, "Context from the kubeconfig (default: the current one)")
      ->type_name("NAME");
  app.add_option("--policy", options.policy, "Scheduling policy (default: adaptive)")->type_name("POLICY");
  app.add_option("--interval", options.interval, "Time between scheduling cycles (default: 1m)")->type_name("DURATION");
  app.add_option("--restart-cost", options.restart_cost,
                 "Training time that a job loses when its allocation changes (default: 30s)")
      ->type_name("DURATION");
}

// Adds the options for the operator's servers and for its own Kubernetes objects.
void add_server_options(CLI::App& app, OperatorRunOptions& options) {
  app.add_option("--address", options.run.address, "IP address that the operator listens on (default: 0.0.0.0)")
      ->type_name("ADDRESS");
  app.add_option("--port", options.port, "Port that the supervisor listens on (default: 8080)")->type_name("PORT");
  app.add_option("--metrics-port", options.metrics_port, "Port that serves metrics to Prometheus (default: none)")
      ->type_name("PORT");
  app.add_option("--lease", options.lease, "Lease that an operator must hold to act (default: none)")
      ->type_name("NAMESPACE/NAME");
  app.add_option("--pod", options.pod, "This operator's pod, labeled adaptdl/leader while the operator is active")
      ->type_name("NAMESPACE/NAME");
  app.add_option("--service", options.service, "Service whose cluster IP the replicas connect to")
      ->type_name("NAMESPACE/NAME");
  app.add_option("--validator", options.validator,
                 "Name of the job validator's Service, Secret and ValidatingWebhookConfiguration (default: none)")
      ->type_name("NAMESPACE/NAME");
  app.add_option("--validator-port", options.validator_port, "Port that the validator listens on (default: 8443)")
      ->type_name("PORT");
  app.add_option("--validator-certificate-lifetime", options.certificate_lifetime,
                 "Lifetime of the validator's certificates (default: 90d)")
      ->type_name("DURATION");
  app.add_option("--supervisor-url", options.supervisor_url,
                 "Supervisor URL for the replicas (default: from --service if given, or from --address and --port)")
      ->type_name("URL");
}

// Adds the options for the pods that run replicas, and for how long jobs wait for these pods.
void add_pod_options(CLI::App& app, OperatorRunOptions& options) {
  app.add_option("--job-resources", options.job_resources, "Default requests and limits of a job's first container")
      ->type_name("JSON");
  app.add_option("--pod-patch", options.pod_patch, "Merge patch or JSON patch for every pod that runs a replica")
      ->type_name("JSON");
  app.add_option("--container-patch", options.container_patch,
                 "Merge patch or JSON patch for every container in a pod that runs a replica")
      ->type_name("JSON");
  app.add_option("--unschedulable-timeout", options.unschedulable_timeout,
                 "Time after which a job fails if it fits on no node; 0 to wait forever (default: 10m)")
      ->type_name("DURATION");
  app.add_option("--start-timeout", options.start_timeout,
                 "Time after which a job fails if its pods cannot start (default: 10m)")
      ->type_name("DURATION");
  app.add_flag("--live-rescale", options.live_rescale,
               "Add and remove replicas of running jobs without restarting the remaining replicas");
}

void add_usage_options(CLI::App& app, OperatorRunOptions& options) {
  app.add_option("--node-prices", options.node_prices,
                 "Node prices, by node labels (default: none; see docs/operator.md)")
      ->type_name("JSON");
  app.add_option("--usage", options.usage,
                 "ConfigMaps NAME-YYYY-MM that store each month's usage for `adaptdl cost` (default: none)")
      ->type_name("NAMESPACE/NAME");
}

void add_expander_options(CLI::App& app, OperatorRunOptions& options) {
  app.add_option("--expander", options.expander,
                 "Deployment of placeholder pods, which make a cluster autoscaler add nodes (default: none)")
      ->type_name("NAMESPACE/NAME");
  app.add_option("--min-nodes", options.min_nodes, "Expander's minimum number of nodes (default: 0)")->type_name("N");
  app.add_option("--max-nodes", options.max_nodes,
                 "Expander's maximum number of nodes; 0 disables the expander (default: 0)")
      ->type_name("N");
  app.add_option("--node-resources", options.node_resources,
                 "Resources of a new node (default: the largest existing node's)")
      ->type_name("JSON");
  app.add_option("--max-cost-per-hour", options.max_cost_per_hour,
                 "Maximum total hourly price of the expander's nodes; 0 for no limit (default: 0)")
      ->type_name("PRICE");
  app.add_option("--min-utility", options.min_utility,
                 "Utility of the nodes below which the expander removes nodes (default: 0.35)")
      ->type_name("FRACTION");
  app.add_option("--max-utility", options.max_utility,
                 "Utility of the nodes above which the expander adds nodes (default: 0.65)")
      ->type_name("FRACTION");
}

void add_drain_options(CLI::App& app, OperatorRunOptions& options) {
  app.add_option("--drain-taints", options.drain_taints,
                 "Taints that mark a node as about to be removed (default: see docs/operator.md)")
      ->type_name("JSON");
  app.add_option("--drain-conditions", options.drain_conditions,
                 "Conditions that mark a node as about to be removed (default: see docs/operator.md)")
      ->type_name("JSON");
}

}  // namespace

void add_operator_run(CLI::App& app) {
  auto options = std::make_shared<OperatorRunOptions>();
  CLI::App* verb = app.add_subcommand("run", "Schedule a cluster's jobs until interrupted");
  add_scheduling_options(*verb, *options);
  add_server_options(*verb, *options);
  add_pod_options(*verb, *options);
  add_usage_options(*verb, *options);
  add_expander_options(*verb, *options);
  add_drain_options(*verb, *options);
  verb->callback([options] { run(*options); });
}

}  // namespace adaptdl::cli
