#include "command/submit/submit_ray.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "command/base/numbers.h"
#include "command/base/stop_signals.h"
#include "command/jobs/ray_jobs.h"
#include "command/run/run_plan.h"
#include "http/http.h"
#include "image/dockerfile/ignore_file.h"
#include "kube/api/file.h"
#include "kube/api/names.h"
#include "kube/api/yaml_documents.h"
#include "ray/job_server.h"
#include "ray/log_stream.h"
#include "ray/package.h"
#include "terminal/dump_json.h"
#include "terminal/format.h"
#include "terminal/print.h"
#include "terminal/terminal.h"
#include "view/copy_line.h"
#include "view/run_summary.h"

namespace adaptdl::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kMaxDevices = 1024;  // maximum number of GPUs or CPUs per replica
constexpr auto kMaxOutage = std::chrono::seconds(30);  // how long the job server may be unreachable
// A job that was asked to stop must end within --checkpoint-timeout plus this margin; otherwise, Ray kills it.
constexpr auto kStopMargin = std::chrono::seconds(30);

int replica_limit(const std::string& text, const char* option, int otherwise) {
  if (text.empty()) return otherwise;
  return parse_number<int>(text, fmt::format("submit: {}", option), 1, kMaxRunReplicas, "an integer");
}

double per_replica(const std::string& text, const char* option) {
  return parse_number<double>(text, fmt::format("submit: {}", option), 0, kMaxDevices, "a number");
}

struct Plan {
  int min = 1, max = 1;
  double cpus = 0, gpus = 0;
  std::chrono::milliseconds checkpoint_timeout{}, rescale_timeout{};
  std::optional<std::chrono::milliseconds> wait;  // maximum time to wait
  json runtime_env = json::object();
};

// Reads the file of --runtime-env.
json read_runtime_env(const std::string& file) {
  const json fields = kube::parse_yaml_document(kube::read_file(file, "runtime environment"), file).value;
  if (!fields.is_object())
    throw UsageError(fmt::format("submit: '{}' must contain a mapping with the fields of a runtime environment", file));
  if (fields.contains("working_dir"))
    throw UsageError(
        fmt::format("submit: {}: working_dir cannot be set, because the project is uploaded as the "
                    "working directory",
                    file));
  const json variables = fields.value("env_vars", json::object());
  const auto is_text = [](const json& value) { return value.is_string(); };
  if (!variables.is_object() || !std::ranges::all_of(variables, is_text))
    throw UsageError(fmt::format("submit: {}: env_vars must be a mapping whose values are strings", file));
  return fields;
}

Plan make_plan(const RaySubmitOptions& options) {
  if (options.program.empty())
    throw UsageError("submit: --ray requires a program, as in `adaptdl submit --ray URL DIR -- ./program`");
  if (options.checkpoint_path.empty() != options.no_checkpoint) {
    throw UsageError(
        "submit: --ray requires either --checkpoint-path DIR, a directory that all nodes share, or --no-checkpoint");
  }
  if (!options.no_checkpoint && !fs::path(options.checkpoint_path).is_absolute()) {
    throw UsageError(
        fmt::format("submit: --checkpoint-path must be an absolute path, not '{}': the working directory of "
                    "the job changes with each submission",
                    options.checkpoint_path));
  }
  if (options.copy_checkpoints && options.no_checkpoint)
    throw UsageError("submit: --copy-checkpoints and --no-checkpoint cannot be used together");
  if (!options.max_replicas.empty() && !options.max_cluster_size.empty())
    throw UsageError("submit: --max-replicas and --max-cluster-size have the same meaning; use only one of them");
  if (options.max_replicas.empty() && options.max_cluster_size.empty()) {
    throw UsageError(
        "submit: --ray requires --max-replicas N, the number of replicas for which the autoscaler may add nodes");
  }
  if (options.follow && options.wait) throw UsageError("submit: --follow also waits; omit --wait");
  if (!options.timeout.empty() && !options.follow && !options.wait)
    throw UsageError("submit: --timeout requires --wait or --follow");
  Plan plan;
  plan.min = replica_limit(options.min_replicas, "--min-replicas", 1);
  const bool size = options.max_replicas.empty();
  plan.max = replica_limit(size ? options.max_cluster_size : options.max_replicas,
                           size ? "--max-cluster-size" : "--max-replicas", kMaxRunReplicas);
  if (plan.min > plan.max)
    throw UsageError(
        fmt::format("submit: the minimum number of replicas ({}) must not be greater than the maximum ({})", plan.min,
                    plan.max));
  plan.cpus = per_replica(options.cpus, "--cpus");
  plan.gpus = per_replica(options.gpus, "--gpus");
  if (plan.cpus == 0 && plan.gpus == 0) throw UsageError("submit: --cpus and --gpus cannot both be 0");
  plan.checkpoint_timeout = env::parse_duration(options.checkpoint_timeout, "submit: --checkpoint-timeout");
  plan.rescale_timeout = env::parse_duration(options.cluster_rescale_timeout, "submit: --cluster-rescale-timeout");
  if (!options.runtime_env.empty()) plan.runtime_env = read_runtime_env(options.runtime_env);
  if (!options.timeout.empty()) plan.wait = env::parse_duration(options.timeout, "submit: --timeout");
  return plan;
}

bool is_name_character(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '-'; }

std::string make_name(const RaySubmitOptions& options) {
  std::string prefix = options.name;
  if (!prefix.empty() && (prefix.front() == '-' || !std::ranges::all_of(prefix, is_name_character)))
    throw UsageError(fmt::format("submit: invalid --name '{}': expected letters, digits and dashes, not beginning "
                                 "with a dash",
                                 prefix));
  if (prefix.empty()) {
    prefix = fs::weakly_canonical(options.project).filename().string();
    std::ranges::replace_if(
        prefix, [](char letter) { return !is_name_character(letter); }, '-');
    prefix.erase(0, prefix.find_first_not_of('-'));
  }
  return kube::generate_name((prefix.empty() ? "job" : prefix) + '-');
}

ray::Package make_package(const RaySubmitOptions& options) {
  const image::IgnoreFile ignored = image::IgnoreFile::of_build(options.project, options.project / "Dockerfile");
  const fs::path scripts = ray_scripts();
  return ray::Package({.project = options.project,
                       .files = {{fmt::format("{}/adaptdl", kRayFiles), "/proc/self/exe"},
                                 {fmt::format("{}/driver.py", kRayFiles), scripts / "driver.py"},
                                 {fmt::format("{}/start.sh", kRayFiles), scripts / "start.sh"}},
                       .excludes =
                           [&](const std::string& path, bool directory) {
                             return path == ".git" ||
                                    (directory ? ignored.skips_directory(path) : ignored.ignores(path));
                           },
                       .notice = [](const std::string& text) { print_notice("{}", text); }});
}

ray::Submission make_submission(const RaySubmitOptions& options, const Plan& plan, const std::string& name) {
  const std::string limits = fmt::format("{}:{}", plan.min, plan.max);
  std::vector<std::string> words = {"exec", "sh", fmt::format("{}/start.sh", kRayFiles), "driver.py"};
  const auto add = [&words](const char* option, const std::string& value) {
    words.insert(words.end(), {option, value});
  };
  add("--adaptdl", fmt::format("{}/adaptdl", kRayFiles));
  add("--cpus", fmt::format("{}", plan.cpus));
  add("--gpus", fmt::format("{}", plan.gpus));
  add("--rescale-timeout-ms", fmt::format("{}", plan.rescale_timeout.count()));
  if (options.copy_checkpoints) words.emplace_back("--copy-checkpoints");
  words.emplace_back("--");
  add("--name", name);
  add("--replicas", limits);
  add("--device-kind", plan.gpus > 0 ? "gpu" : "cpu");
  add("--grace", fmt::format("{}ms", plan.checkpoint_timeout.count()));
  if (options.no_checkpoint) {
    words.emplace_back("--no-checkpoint");
  } else {
    add("--checkpoint", options.checkpoint_path);
  }
  words.emplace_back("--");
  words.insert(words.end(), options.program.begin(), options.program.end());
  const auto stop = std::chrono::ceil<std::chrono::seconds>(plan.checkpoint_timeout) + kStopMargin;
  std::map<std::string, std::string> metadata = {{kRayProgram, shell_command(options.program)}, {kRayReplicas, limits}};
  if (!options.no_checkpoint) metadata[kRayCheckpoints] = options.checkpoint_path;
  return {.id = name,
          .entrypoint = shell_command(words),
          .package_uri = {},
          .environment = {{"PYTHONUNBUFFERED", "1"}, {"RAY_JOB_STOP_WAIT_TIME_S", fmt::format("{}", stop.count())}},
          .metadata = std::move(metadata),
          .runtime_env = plan.runtime_env};
}

void print_started(const RaySubmitOptions& options, const std::string& name, const std::string& url) {
  if (options.json) {
    print_text(dump_json(json{{"name", name}, {"ray", url}}, -1) + '\n');
  } else if (!is_terminal(STDOUT_FILENO)) {
    print_out("{}\n", name);
  } else {
    print_out("Submitted job {} to the Ray cluster {}\n", name, url);
    if (!options.follow && !options.wait) {
      print_out("  adaptdl ls --ray {0}\n  adaptdl logs --ray {0} {1} --follow\n  adaptdl delete --ray {0} {1}\n",
                options.address, name);
    }
  }
  std::fflush(stdout);
}

// Waits until the job has ended, and returns why it failed, or "" if it succeeded. Throws Error if it does not end in
// time, and http::Stopped if a stop is requested.
std::string wait_for_end(const ray::Access& access, const std::string& name, const Plan& plan,
                         const std::stop_token& stop) {
  const auto job = ray::JobServer(access, kMaxOutage).wait_for_end(name, plan.wait, stop);
  if (stop.stop_requested()) throw http::Stopped();
  if (!job) return fmt::format("job '{}' was deleted before it ended", name);
  if (!job->ended()) throw Error(fmt::format("timed out waiting for job '{}'; the job was not stopped", name));
  if (job->status == ray::Job::Status::kSucceeded) return "";
  if (job->status == ray::Job::Status::kStopped) return fmt::format("job '{}' was stopped", name);
  return fmt::format("job '{}' failed: {}", name, failure_of(*job));
}

// Like wait_for_end(), but also prints the job's output.
std::string follow(const ray::Access& access, const std::string& name, const Plan& plan, const std::stop_token& stop) {
  std::stop_source enough;
  const std::stop_callback pass_on(stop, [&enough] { enough.request_stop(); });
  std::jthread output([&] {
    try {
      ray::follow_logs(access, name, enough.get_token(), [](std::string_view piece) {
        print_raw(piece);
        return std::fflush(stdout) == 0;
      });
    } catch (const Error& error) {
      print_notice("{}", error.what());
    }
    if (std::ferror(stdout) != 0) enough.request_stop();
  });
  try {
    const std::string failure = wait_for_end(access, name, plan, enough.get_token());
    output.join();  // the output ends when the job does
    return failure;
  } catch (...) {
    enough.request_stop();
    throw;
  }
}

}  // namespace

void add_ray_submit_options(CLI::App& app, RaySubmitOptions& options) {
  CLI::Option* ray = add_ray_option(app, options.address);
  const auto add = [&](const char* name, std::string& value, const char* description, const char* type) {
    app.add_option(name, value, description)->type_name(type)->needs(ray);
  };
  add("--cpus", options.cpus, "With --ray: number of CPUs per replica (default: 1)", "N");
  add("--gpus", options.gpus, "With --ray: number of GPUs per replica (default: 1)", "N");
  add("--max-cluster-size", options.max_cluster_size, "With --ray: maximum number of replicas, same as --max-replicas",
      "N");
  add("--checkpoint-path", options.checkpoint_path,
      "With --ray: directory that all nodes share, in which checkpoints are saved and from which the job continues",
      "DIR");
  app.add_flag("--copy-checkpoints", options.copy_checkpoints,
               "With --ray: keep checkpoints on the head node only, and copy them to and from the other nodes")
      ->needs(ray);
  app.add_flag("--no-checkpoint", options.no_checkpoint,
               "With --ray: save no checkpoints; the program starts from the beginning if it must be restarted")
      ->needs(ray);
  add("--checkpoint-timeout", options.checkpoint_timeout,
      "With --ray: time in which replicas that are asked to stop must save a checkpoint (default: 120s)", "DURATION");
  add("--cluster-rescale-timeout", options.cluster_rescale_timeout,
      "With --ray: time to wait for more nodes if the program must be restarted to use them (default: 60s)",
      "DURATION");
  add("--runtime-env", options.runtime_env,
      "With --ray: YAML file with fields of Ray's runtime environment, such as pip packages that the program needs",
      "FILE");
}

void submit_ray(const RaySubmitOptions& options, int& exit_code) {
  const Plan plan = make_plan(options);
  const std::string name = make_name(options);
  const ray::Access access = find_ray(options.address);
  StopSignals signals([] {});
  try {
    ray::JobServer server(access);
    server.check_version();
    ray::Submission submission = make_submission(options, plan, name);
    {
      const ray::Package package = make_package(options);
      CopyLine line("package");
      submission.package_uri =
          server.upload(package.name(), package.path(), signals.token(),
                        [&](std::uint64_t sent) { line.show(sent, package.size()); });
    }
    if (signals.token().stop_requested()) throw http::Stopped();
    server.submit(submission);
    print_started(options, name, server.url());
    std::string failure;
    if (options.follow) failure = follow(access, name, plan, signals.token());
    if (options.wait) failure = wait_for_end(access, name, plan, signals.token());
    if (!failure.empty()) throw Error(failure);
  } catch (const http::Stopped&) {
    exit_code = signals.exit_code();
  }
}

}  // namespace adaptdl::cli
