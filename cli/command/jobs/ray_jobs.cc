#include "command/jobs/ray_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "base/text_parts.h"
#include "command/base/installed_data.h"
#include "kube/api/names.h"
#include "kube/api/timestamp.h"
#include "ray/head_shell.h"
#include "ray/log_stream.h"
#include "terminal/dump_json.h"
#include "terminal/format.h"
#include "terminal/print.h"
#include "terminal/terminal.h"
#include "view/list_table.h"
#include "view/run_summary.h"

namespace adaptdl::cli {
namespace {

using nlohmann::json;
using Status = ray::Job::Status;

constexpr char kRayCopy[] = "adaptdl.copy";  // in the metadata of jobs that only copy files

const char* state_name(Status status) {
  switch (status) {
    case Status::kPending:
      return "Pending";
    case Status::kRunning:
      return "Running";
    case Status::kStopped:
      return "Stopped";
    case Status::kSucceeded:
      return "Succeeded";
    case Status::kFailed:
      return "Failed";
  }
  return "";
}

std::string metadata_of(const ray::Job& job, const char* key) {
  const auto found = job.metadata.find(key);
  return found == job.metadata.end() ? "" : found->second;
}

bool is_ours(const ray::Job& job) { return job.metadata.contains(kRayProgram); }

ray::Job get_job(ray::JobServer& server, const std::string& name) {
  auto job = server.find(name);
  if (!job || !is_ours(*job)) {
    throw Error(
        fmt::format("job '{}' not found among adaptdl's jobs in the Ray cluster '{}'; `adaptdl ls --ray URL` lists "
                    "them",
                    name, server.url()));
  }
  return std::move(*job);
}

json time_json(const std::optional<std::chrono::system_clock::time_point>& time) {
  return time ? json(kube::to_string(*time)) : json();
}

json to_json(const ray::Job& job) {
  return {{"name", job.id},
          {"state", state_name(job.status)},
          {"replicas", metadata_of(job, kRayReplicas)},
          {"started", time_json(job.start)},
          {"ended", time_json(job.end)},
          {"exit_code", job.exit_code ? json(*job.exit_code) : json()},
          {"message", job.message},
          {"program", metadata_of(job, kRayProgram)}};
}

// Returns the last line of a job's output without the prefix of adaptdl's errors.
std::string last_line(std::string_view text) {
  constexpr std::string_view kPrefix = "adaptdl: error: ";
  while (text.ends_with('\n')) text.remove_suffix(1);
  text.remove_prefix(text.rfind('\n') + 1);  // 0 if there is only one line
  if (text.starts_with(kPrefix)) text.remove_prefix(kPrefix.size());
  return std::string(text);
}

// Ray sets a message even for jobs without problems.
std::string why(const ray::Job& job) {
  return job.status == Status::kFailed ? failure_of(job) : job.status == Status::kPending ? job.message : "";
}

std::string time_of(const ray::Job& job) {
  if (!job.start) return "-";
  const auto end = job.end.value_or(std::chrono::system_clock::now());
  return format_clock(std::chrono::duration_cast<std::chrono::milliseconds>(end - *job.start));
}

// Prints the output of a job line by line.
class Printer {
 public:
  Printer(std::optional<int> rank, std::optional<int> tail) : tail_(tail) {
    if (rank) prefix_ = fmt::format("[{}] ", *rank);
  }

  // Returns false if standard output is closed.
  bool add(std::string_view piece) {
    partial_ += piece;
    std::size_t begin = 0;
    for (std::size_t end; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1)
      line(std::string_view(partial_).substr(begin, end - begin));
    partial_.erase(0, begin);
    return std::fflush(stdout) == 0;
  }
  void finish() {
    if (!partial_.empty()) line(partial_);
    partial_.clear();
    for (const std::string& last : last_) print_raw(last + '\n');
    last_.clear();
  }

 private:
  void line(std::string_view text) {
    if (!text.starts_with(prefix_)) return;
    text.remove_prefix(prefix_.size());
    if (!tail_) return print_raw(fmt::format("{}\n", text));
    if (last_.size() >= static_cast<std::size_t>(*tail_) && !last_.empty()) last_.pop_front();
    if (*tail_ > 0) last_.emplace_back(text);
  }

  std::string prefix_, partial_;
  std::optional<int> tail_;
  std::deque<std::string> last_;
};

}  // namespace

CLI::Option* add_ray_option(CLI::App& app, std::string& address, const std::vector<const char*>& others) {
  CLI::Option* option = app.add_option("--ray", address,
                                       "Job server of a Ray cluster, such as http://HEAD:8265, or auto for the one in "
                                       "RAY_API_SERVER_ADDRESS or RAY_ADDRESS")
                            ->type_name("URL");
  for (const char* other : others) option->excludes(app.get_option(other));
  return option;
}

std::string failure_of(const ray::Job& job) { return last_line(job.message); }

ray::Access find_ray(const std::string& address) { return ray::find_access(address == "auto" ? "" : address); }

std::filesystem::path ray_scripts() {
  std::filesystem::path directory = installed_data("ray");
  if (directory.empty()) throw Error("share/adaptdl/ray not found; reinstall adaptdl");
  return directory;
}

void list_ray_jobs(const std::string& address, const std::vector<std::string>& names, bool as_json) {
  ray::JobServer server(find_ray(address));
  std::vector<ray::Job> jobs = server.list();
  std::erase_if(jobs, [&](const ray::Job& job) {
    return !is_ours(job) || (!names.empty() && std::ranges::find(names, job.id) == names.end());
  });
  for (const std::string& name : names) {
    if (std::ranges::find(jobs, name, &ray::Job::id) == jobs.end()) get_job(server, name);  // throws
  }
  if (as_json) {
    json all = json::array();
    for (const ray::Job& job : jobs) all.push_back(to_json(job));
    return print_text(dump_json(all) + '\n');
  }
  if (jobs.empty()) return print_text("no jobs\n");
  std::vector<ListRow> rows;
  for (const ray::Job& job : jobs) {
    const std::string replicas = metadata_of(job, kRayReplicas);
    rows.push_back({.name = job.id,
                    .where = "ray",
                    .state = lower(state_name(job.status)),
                    .replicas = replicas.empty() ? "-" : replicas,
                    .runtime = time_of(job),
                    .why = why(job)});
  }
  list_table(rows, false, terminal_width(STDOUT_FILENO).has_value()).print();
}

void run_on_ray_head(const std::string& address, const std::string& job, const std::vector<std::string>& words) {
  constexpr std::string_view kMark = "adaptdl-output-begins";  // after Ray's own lines
  ray::JobServer server(find_ray(address));
  const ray::Job target = get_job(server, job);
  if (target.status != Status::kRunning)
    throw Error(fmt::format("job '{}' is not running: {}", job, state_name(target.status)));
  std::vector<std::string> command = {fmt::format("{}/adaptdl", kRayFiles)};
  command.insert(command.end(), words.begin(), words.end());
  const std::string helper = kube::generate_name(job + "-command-");
  server.submit({.id = helper,
                 .entrypoint = fmt::format("echo; echo {}; exec {} 2>&1", kMark, shell_command(command)),
                 .package_uri = target.package_uri,
                 .environment = {},
                 .metadata = {}});
  const std::optional<ray::Job> done = server.wait_for_end(helper);
  std::string output = server.logs(helper);
  server.remove(helper);
  const std::size_t mark = output.find(fmt::format("\n{}\n", kMark));
  output.erase(0, mark == std::string::npos ? output.size() : mark + kMark.size() + 2);
  // Ray writes this line to the same log while the command is running, so the line may be anywhere in the output.
  if (const std::size_t line = output.find(fmt::format("Running entrypoint for job {}:", helper));
      line != std::string::npos)
    output.erase(line, output.find('\n', line) + 1 - line);
  if (!done || done->status != Status::kSucceeded)
    throw Error(last_line(output.empty() && done ? done->message : output));
  print_text(printable_text(output, false));
}

std::unique_ptr<kube::Shell> open_ray_shell(const std::string& address, const std::string& job, const std::string& path,
                                            const std::stop_token& stop) {
  const ray::Access access = find_ray(address);
  ray::JobServer server(access);
  const std::string directory = metadata_of(get_job(server, job), kRayCheckpoints);
  if (directory.empty() && !path.starts_with('/'))
    throw UsageError(
        fmt::format("cp: '{}' must be an absolute path, because job '{}' has no --checkpoint-path", path, job));
  // Interrupted copies leave the records of their jobs behind.
  for (const ray::Job& left : server.list()) {
    if (left.metadata.contains(kRayCopy) && left.ended()) server.remove(left.id);
  }
  return std::make_unique<ray::HeadShell>(access, kube::generate_name(job + "-copy-"),
                                          std::map<std::string, std::string>{{kRayCopy, job}}, ray_scripts(),
                                          directory.empty() ? "/" : directory, stop);
}

void show_ray_logs(const std::string& address, const RayLogsOptions& options) {
  const ray::Access access = find_ray(address);
  ray::JobServer server(access);
  get_job(server, options.job);
  Printer printer(options.rank, options.follow ? std::nullopt : options.tail);
  if (options.follow) {
    ray::follow_logs(access, options.job, {}, [&](std::string_view piece) { return printer.add(piece); });
  } else {
    printer.add(server.logs(options.job));
  }
  printer.finish();
}

void delete_ray_jobs(const std::string& address, const std::vector<std::string>& names, bool no_wait) {
  ray::JobServer server(find_ray(address));
  for (const std::string& name : names) get_job(server, name);
  for (const std::string& name : names) server.stop(name);
  for (const std::string& name : names) {
    if (no_wait) {
      print_out("stopping {}\n", name);
      continue;
    }
    if (!server.wait_for_end(name)) get_job(server, name);  // throws
    server.remove(name);
    print_out("deleted {}\n", name);
  }
}

}  // namespace adaptdl::cli
