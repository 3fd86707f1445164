#include "command/run/run_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <tuple>
#include <utility>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "base/private_files.h"
#include "command/base/numbers.h"
#include "local/base/program.h"
#include "local/devices/devices.h"
#include "local/replica/replica_environment.h"

namespace adaptdl::cli {
namespace fs = std::filesystem;
namespace {

// An elastic run survives this many failures by default.
constexpr int kElasticRestarts = 3;

// The minimum and maximum number of characters in a token that a user provides.
constexpr std::size_t kMinTokenLength = 16, kMaxTokenLength = 1024;

// Parses an integer in [min, max].
int parse_run_count(const std::string& text, const std::string& what, int min, int max) {
  return parse_number(text, "run: " + what, min, max, "an integer");
}

bool is_plain(unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-'; }

// Parses the bounds of --replicas: N, or MIN:MAX.
std::pair<int, int> parse_bounds(const std::string& text) {
  const std::size_t colon = text.find(':');
  try {
    const int min = parse_run_count(text.substr(0, colon), "--replicas", 1, kMaxRunReplicas);
    if (colon == std::string::npos) return {min, min};
    return {min, parse_run_count(text.substr(colon + 1), "--replicas", min, kMaxRunReplicas)};
  } catch (const UsageError&) {
    throw UsageError(
        fmt::format("run: --replicas must be auto, an integer from 1 to {}, or a minimum and maximum as MIN:MAX, "
                    "not '{}'",
                    kMaxRunReplicas, text));
  }
}

std::vector<std::string> numbered(unsigned count) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

// Parses the list of --devices, whose items must differ.
std::vector<std::string> parse_devices(const std::string& text) {
  std::vector<std::string> devices;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    if (item.empty() || !std::ranges::all_of(item, is_plain) || std::ranges::find(devices, item) != devices.end()) {
      throw UsageError(fmt::format(
          "run: --devices must be a comma-separated list of different devices, such as 0,2,3, not '{}'", text));
    }
    devices.push_back(item);
  }
  return devices;
}

void set_cpu_devices(sched::LaunchPlan& plan, const RunOptions& options, const Machine& machine) {
  plan.device_kind = sched::DeviceKind::kCpu;
  if (options.backend == "nccl")
    throw UsageError("run: --backend nccl requires GPUs and cannot be used with --device-kind cpu");
  if (options.devices.empty()) {
    plan.devices = numbered(machine.cores);
  } else if (std::ranges::all_of(options.devices, [](unsigned char c) { return std::isdigit(c) != 0; })) {
    const int count = parse_run_count(options.devices, "the number in --devices", 1, kMaxRunReplicas);
    plan.devices = numbered(static_cast<unsigned>(count));
  } else {
    plan.devices = parse_devices(options.devices);
  }
}

void set_gpu_devices(sched::LaunchPlan& plan, const RunOptions& options, const Machine& machine) {
  if (machine.devices.empty() && options.device_kind == "gpu") {
    throw UsageError("run: --device-kind gpu requires GPUs, but no GPU is available; use --device-kind cpu");
  }
  plan.devices = options.devices.empty() ? machine.devices : parse_devices(options.devices);
  for (const std::string& device : plan.devices) {
    if (std::ranges::find(machine.devices, device) != machine.devices.end()) continue;
    throw UsageError(
        fmt::format("run: GPU '{}' not found; available GPUs: {}", device, fmt::join(machine.devices, ", ")));
  }
}

void set_devices(sched::LaunchPlan& plan, const RunOptions& options, const Machine& machine) {
  if (!options.device_kind.empty() && options.device_kind != "gpu" && options.device_kind != "cpu") {
    throw UsageError(fmt::format("run: --device-kind must be gpu or cpu, not '{}'", options.device_kind));
  }
  const bool named = !options.devices.empty() || !options.device_kind.empty();
  plan.elastic = options.replicas.find(':') != std::string::npos;
  if (machine.relay) {
    plan.relay = machine.relay;
    plan.copies_checkpoints = machine.relay->copies_checkpoints;
    plan.device_kind = options.device_kind == "gpu" ? sched::DeviceKind::kGpu : sched::DeviceKind::kCpu;
    return;
  }
  plan.shares_machine = named || plan.elastic;
  if (!options.fairness.empty()) plan.fairness = parse_fairness(options.fairness, "run: --fairness");
  const bool cpu =
      options.device_kind == "cpu" || (options.device_kind.empty() && machine.devices.empty() && plan.shares_machine);
  if (cpu) {
    set_cpu_devices(plan, options, machine);
  } else {
    set_gpu_devices(plan, options, machine);
  }
}

void set_replicas(sched::LaunchPlan& plan, const RunOptions& options, const Machine& machine) {
  const std::string& backend = options.backend.empty() ? machine.backend : options.backend;
  if (!backend.empty() && backend != "gloo" && backend != "nccl") {
    throw UsageError(fmt::format("run: --backend must be gloo or nccl, not '{}'", backend));
  }
  if (backend == "nccl" && machine.devices.empty() && !machine.relay)
    throw UsageError("run: --backend nccl requires GPUs, but no GPU is available; use --backend gloo");
  if (!options.backend.empty()) plan.settings.emplace_back("ADAPTDL_BACKEND", options.backend);
  set_devices(plan, options, machine);
  const auto devices = static_cast<int>(plan.devices.size());
  if (options.replicas == "auto") {
    plan.replicas = plan.min_replicas = std::clamp(devices, 1, kMaxRunReplicas);
  } else {
    std::tie(plan.min_replicas, plan.replicas) = parse_bounds(options.replicas);
  }
  if (!options.start_replicas.empty()) {
    if (!plan.elastic) throw UsageError("run: --start-replicas requires an elastic run (--replicas MIN:MAX)");
    plan.start_replicas = parse_run_count(options.start_replicas, "--start-replicas", plan.min_replicas, plan.replicas);
  }
  if (devices == 0 || plan.replicas <= devices) return;
  const bool gpu = plan.device_kind == sched::DeviceKind::kGpu;
  plan.share_devices = gpu && !plan.elastic && backend == "gloo";
  if (plan.share_devices) {
    plan.shares_machine = false;
  } else if (plan.min_replicas <= devices) {
    plan.replicas = devices;
  } else if (gpu) {
    sched::assign_devices(plan.devices, plan.min_replicas, false);
  } else {
    throw UsageError(
        fmt::format("run: {0} replicas need {0} devices, but only {2} {1} available; use fewer replicas, or "
                    "--devices {0}",
                    plan.min_replicas, devices == 1 ? "is" : "are", devices));
  }
}

// Reads the token from the file, which the user created and copied to each machine.
std::string read_token(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(fmt::format("run: --token-file '{}': {}", path, why));
  };
  struct stat about {};
  std::ifstream file(path);
  if (::stat(path.c_str(), &about) != 0 || !file) refuse(std::strerror(errno));
  if (S_ISREG(about.st_mode) && (about.st_mode & S_IROTH) != 0)
    refuse(fmt::format("other users can read the file; run `chmod 600 {}`", path));
  std::string token, more;
  file >> std::setw(kMaxTokenLength + 1) >> token >> std::setw(1) >> more;
  if (token.size() < kMinTokenLength || token.size() > kMaxTokenLength || !more.empty() ||
      !std::ranges::all_of(token, [](unsigned char c) { return c > ' ' && c < 127; })) {
    refuse(fmt::format("expected one word of {} to {} printable characters; create one with `openssl rand -hex 16`",
                       kMinTokenLength, kMaxTokenLength));
  }
  return token;
}

void set_nodes(sched::LaunchPlan& plan, const RunOptions& options) {
  plan.nodes = options.nodes.empty() ? 1 : parse_run_count(options.nodes, "--nodes", 1, 100'000);
  if (plan.nodes > 1 && (options.node_rank.empty() || options.master.empty())) {
    throw UsageError(
        "run: --nodes requires --node-rank, different on each machine, and --master HOST:PORT, the same on all");
  }
  if (plan.nodes > 1 && options.checkpoint.empty() && !options.no_checkpoint) {
    throw UsageError("run: --nodes requires --checkpoint DIR, a directory shared by all machines, or --no-checkpoint");
  }
  if (plan.nodes > 1) plan.shares_machine = false;
  if (plan.nodes > 1 && plan.elastic) {
    throw UsageError(
        "run: --replicas MIN:MAX works only on one machine; with --nodes, use --replicas N, the number of replicas per "
        "machine");
  }
  if (!options.token_file.empty()) {
    if (plan.nodes == 1)
      throw UsageError(
          "run: --token-file works only with several machines (--nodes); on one machine, the run creates its own "
          "token");
    plan.token = read_token(options.token_file);
  }
  if (!options.node_rank.empty()) plan.node_rank = parse_run_count(options.node_rank, "--node-rank", 0, plan.nodes - 1);
  if (options.master.empty()) return;
  const std::size_t colon = options.master.rfind(':');
  std::string host = options.master.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    host.clear();  // without brackets, the last part of an IPv6 address would be read as the port
  }
  if (colon == std::string::npos || host.empty()) {
    throw UsageError(fmt::format("run: --master must be HOST:PORT or [IPV6]:PORT, not '{}'", options.master));
  }
  plan.master_host = host;
  plan.master_port =
      static_cast<std::uint16_t>(parse_run_count(options.master.substr(colon + 1), "the port in --master", 1, 65535));
}

enum class Access { kUser, kUmask };

// Creates the directory with the given access if it does not exist, and returns its absolute path.
fs::path directory(const std::string& text, const std::string& what, Access access) {
  std::error_code error;
  fs::path path = fs::absolute(text, error).lexically_normal();
  // "DIR/" and "DIR" are the same directory.
  if (!path.has_filename() && path.has_parent_path()) path = path.parent_path();
  if (!error && access == Access::kUser) error = create_private_directories(path);
  if (!error && access == Access::kUmask) fs::create_directories(path, error);
  if (!error && !fs::is_directory(path)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) throw UsageError(fmt::format("run: cannot use {} '{}': {}", what, text, error.message()));
  return path;
}

void set_checkpoints(sched::LaunchPlan& plan, const RunOptions& options) {
  if (options.no_checkpoint && !options.checkpoint.empty())
    throw UsageError("run: --checkpoint and --no-checkpoint cannot be used together");
  if (!options.checkpoint_every.empty()) {
    env::parse_duration(options.checkpoint_every, "run: --checkpoint-every");
    plan.settings.emplace_back("ADAPTDL_CHECKPOINT_EVERY", options.checkpoint_every);
  }
  if (!options.checkpoint_keep.empty()) {
    parse_run_count(options.checkpoint_keep, "--checkpoint-keep", 1, 1'000'000);
    plan.settings.emplace_back("ADAPTDL_CHECKPOINT_KEEP", options.checkpoint_keep);
  }
  if (!options.checkpoint.empty()) plan.checkpoints = directory(options.checkpoint, "--checkpoint", Access::kUser);
}

void set_environment(sched::LaunchPlan& plan, const RunOptions& options, const Machine& machine) {
  for (const std::string& entry : options.environment) {
    const std::size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    if (name.empty()) throw UsageError(fmt::format("run: --env expects NAME=VALUE or NAME, not '{}'", entry));
    if (sched::is_launchers_own(name))
      throw UsageError(fmt::format("run: --env cannot set {}, which `adaptdl run` sets itself", name));
    if (equals != std::string::npos) {
      plan.settings.emplace_back(name, entry.substr(equals + 1));
      continue;
    }
    const auto own = machine.environment.find(name);
    if (own == machine.environment.end()) {
      throw UsageError(fmt::format("run: --env {0}: the variable is not set; export it, or use --env {0}=VALUE", name));
    }
    plan.settings.emplace_back(name, own->second);
  }
}

// Parses ADAPTDL_RELAY, which only our own drivers set.
std::optional<sched::Relay> parse_relay(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  try {
    const auto relay = nlohmann::json::parse(*text);
    return sched::Relay{
        .in = relay.at("in").get<int>(),
        .out = relay.at("out").get<int>(),
        .address = relay.at("address").get<std::string>(),
        .copies_checkpoints = relay.at("copy_checkpoints").get<bool>(),
        .rescale_timeout = std::chrono::milliseconds(relay.at("rescale_timeout_ms").get<std::int64_t>())};
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("run: invalid ADAPTDL_RELAY '{}': {}", *text, error.what()));
  }
}

}  // namespace

Machine this_machine() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  return {.search_path = variable("PATH").value_or("/usr/local/bin:/usr/bin:/bin"),
          .backend = variable("ADAPTDL_BACKEND").value_or(""),
          .devices = sched::visible_devices(variable("CUDA_VISIBLE_DEVICES")),
          .cores = sched::usable_cores(),
          .environment = sched::caller_environment(),
          .relay = parse_relay(variable("ADAPTDL_RELAY"))};
}

std::string plain_name(const std::string& program) {
  std::string name = fs::path(program).filename().string();
  std::ranges::replace_if(
      name, [](unsigned char c) { return !is_plain(c); }, '-');
  return name.empty() ? "program" : name.substr(0, 63);
}

sched::LaunchPlan make_plan(const RunOptions& options, const Machine& machine) {
  if (options.program.empty()) throw UsageError("run: no program given (see `adaptdl help run`)");
  if (!std::ranges::all_of(options.name, is_plain) || options.name.size() > 63) {
    throw UsageError(
        fmt::format("run: invalid --name '{}': expected up to 63 letters, digits, '.', '_' and '-'", options.name));
  }
  // The name is also used for a directory.
  if (options.name.starts_with('.'))
    throw UsageError(fmt::format("run: invalid --name '{}': must not begin with '.'", options.name));
  sched::LaunchPlan plan;
  set_replicas(plan, options, machine);
  set_nodes(plan, options);
  set_environment(plan, options, machine);
  if (!options.max_restarts.empty()) {
    plan.max_restarts = parse_run_count(options.max_restarts, "--max-restarts", 0, 1'000'000);
  } else if (plan.elastic) {
    plan.max_restarts = kElasticRestarts;
  }
  if (!options.hang_timeout.empty()) {
    plan.hang_timeout = env::parse_duration(options.hang_timeout, "run: --hang-timeout");
    if (plan.hang_timeout->count() == 0) throw UsageError("run: --hang-timeout must be greater than 0, such as 10m");
  }
  plan.grace = env::parse_duration(options.grace, "run: --grace");
  plan.program = sched::find_program(options.program.front(), machine.search_path);
  plan.arguments = options.program;
  plan.job_id = "local/" + (options.name.empty() ? plain_name(options.program.front()) : options.name);
  // Directories are created last, when all other checks have passed.
  set_checkpoints(plan, options);
  if (!options.share.empty()) plan.share = directory(options.share, "--share", Access::kUmask);
  if (!options.logs.empty()) plan.logs = directory(options.logs, "--logs", Access::kUser);
  return plan;
}

}  // namespace adaptdl::cli
