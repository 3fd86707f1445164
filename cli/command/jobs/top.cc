#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "adaptdl/error.h"
#include "command/base/cluster_options.h"
#include "command/base/command.h"
#include "command/base/stop_signals.h"
#include "http/http.h"
#include "operator/cluster/cluster_state.h"
#include "terminal/dump_json.h"
#include "terminal/print.h"
#include "terminal/terminal.h"
#include "view/top_tables.h"

namespace adaptdl::cli {
namespace {

constexpr std::chrono::seconds kLookEvery{2};

struct TopOptions {
  ClusterOptions cluster;
  bool json = false;
  bool watch = false;
};

sched::AllocatorCluster look(kube::Client& client, const std::stop_token& stop) {
  sched::ClusterState state;
  const kube::ListOptions from_memory{.label_selector = {}, .field_selector = {}, .from_memory = true};
  client.list(
      kube::path(kube::kNodes, ""), from_memory, [&](nlohmann::json&& node) { state.put_node(node); }, stop);
  client.list(
      kube::path(kube::kAdaptDLJobs, ""), from_memory, [&](nlohmann::json&& job) { state.put_job(job); }, stop);
  client.list(
      kube::path(kube::kPods, ""), from_memory, [&](nlohmann::json&& pod) { state.put_pod(pod); }, stop);
  for (const kube::Resource* resource : sched::kDeviceResources) {
    try {
      client.list(
          kube::path(*resource, ""), from_memory,
          [&](nlohmann::json&& object) { state.put_device_object(*resource, object); }, stop);
    } catch (const kube::ApiError& error) {
      // Not every cluster has the resource, and not every user is allowed to list it.
      if (!error.not_found() && error.code() != 403) throw;
    }
  }
  return state.cluster({}, std::chrono::system_clock::now());
}

std::string render(const sched::AllocatorCluster& cluster, bool as_json) {
  if (as_json) return dump_json(top_json(cluster)) + '\n';
  const auto width = terminal_width(STDOUT_FILENO);
  const bool colour = use_colour(STDOUT_FILENO);
  const Table jobs = jobs_on_nodes_table(cluster);
  return nodes_table(cluster).render(width, colour) + '\n' +
         (jobs.empty() ? "no jobs have nodes\n" : jobs.render(width, colour));
}

// Returns the first lines of the text, as many as fit on the terminal.
std::string fit(const std::string& text) {
  const auto height = static_cast<std::ptrdiff_t>(terminal_height(STDOUT_FILENO).value_or(24));
  if (std::ranges::count(text, '\n') < height) return text;
  std::size_t end = 0;
  for (std::ptrdiff_t line = 1; line < height; ++line) end = text.find('\n', end) + 1;
  return text.substr(0, end);
}

// Returns whether a later request may succeed.
bool is_temporary(const Error& error) {
  const auto* refused = dynamic_cast<const kube::ApiError*>(&error);
  return dynamic_cast<const http::ConnectionError*>(&error) != nullptr ||
         (refused != nullptr && refused->code() >= 500);
}

// Shows the cluster until a signal arrives. Redraws it in place on a terminal; otherwise, prints it repeatedly.
void watch(kube::Client& client, bool as_json, const std::stop_token& stop) {
  const bool redraws = is_capable_terminal(STDOUT_FILENO) && !as_json;
  std::ptrdiff_t lines = 0;
  bool first = true, out_of_reach = false;
  std::mutex mutex;
  std::condition_variable_any wake;
  while (!stop.stop_requested()) {
    try {
      const sched::AllocatorCluster cluster = look(client, stop);
      std::string text = as_json ? dump_json(top_json(cluster), -1) + '\n' : render(cluster, false);
      if (redraws) text = fit(text);
      if (redraws && lines > 0) erase_lines(lines);
      if (!redraws && !as_json && !first) text.insert(0, "\n");
      print_text(text);
      lines = std::ranges::count(text, '\n');
      out_of_reach = first = false;
    } catch (const http::Stopped&) {
      return;
    } catch (const Error& error) {
      if (first || !is_temporary(error)) throw;
      if (!out_of_reach) print_notice("{}; showing the last known state of the cluster", error.what());
      out_of_reach = true;
      lines = 0;  // the text on the terminal is now above that notice
    }
    if (std::fflush(stdout) != 0) return;
    std::unique_lock lock(mutex);
    wake.wait_for(lock, stop, kLookEvery, [] { return false; });
  }
}

}  // namespace

void add_top(CLI::App& app, int&) {
  auto options = std::make_shared<TopOptions>();
  app.add_option("--context", options->cluster.context, "Context from the kubeconfig (default: the current one)")
      ->type_name("NAME");
  app.add_flag("--json", options->json, "Print JSON; with --watch, one object per line");
  app.add_flag("--watch", options->watch, "Repeat every 2 s until Ctrl-C");
  app.footer(
      "GPUS shows how many of the node's GPUs are held by pods. JOBS shows each job's number of pods and, as\n"
      "'others', the GPUs held by pods of other workloads. The state 'leaving' means that a node is about to be\n"
      "removed. GOODPUT is in samples per second, weighted by their statistical efficiency, as the job's goodput\n"
      "model predicts for its nodes.");
  app.callback([options] {
    kube::Client client(require_cluster(options->cluster));
    if (!options->watch) return print_text(render(look(client, {}), options->json));
    const StopSignals signals([] {});
    watch(client, options->json, signals.token());
  });
}

}  // namespace adaptdl::cli
