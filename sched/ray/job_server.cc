#include "ray/job_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <thread>

#include "base/foreign_json.h"
#include "base/printable.h"

namespace adaptdl::ray {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kJobs = "/api/jobs/";
constexpr int kMinMajor = 2, kMinMinor = 10;
constexpr std::size_t kMaxLogs = std::size_t{256} << 20;
constexpr auto kRetryAfter = std::chrono::milliseconds(300);
constexpr auto kLookEvery = std::chrono::milliseconds(200);  // for the end of a job, during the first kSoon
constexpr auto kLookEveryLater = std::chrono::milliseconds(1000);
constexpr auto kSoon = std::chrono::seconds(10);
// The server checks its jobs once per second, and reports a job without a record as failed.
constexpr auto kMonitorPeriod = std::chrono::milliseconds(2000);
constexpr auto kRecent = std::chrono::seconds(30);  // allows for clocks that differ
constexpr auto kStall = std::chrono::seconds(60);
constexpr std::size_t kMaxReason = 300;  // characters of an error message from the server

std::string text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<std::chrono::system_clock::time_point> time_of(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  return std::chrono::system_clock::time_point(std::chrono::milliseconds(found->get<std::int64_t>()));
}

std::optional<Job::Status> parse_status(const std::string& text) {
  if (text == "PENDING") return Job::Status::kPending;
  if (text == "RUNNING") return Job::Status::kRunning;
  if (text == "STOPPED") return Job::Status::kStopped;
  if (text == "SUCCEEDED") return Job::Status::kSucceeded;
  if (text == "FAILED") return Job::Status::kFailed;
  return std::nullopt;
}

// Returns nullopt for a job that was not submitted to the server, such as an interactive session.
std::optional<Job> parse_job(const json& object) {
  if (!object.is_object()) return std::nullopt;
  const auto status = parse_status(text_of(object, "status"));
  Job job;
  job.id = text_of(object, "submission_id");
  if (!status || job.id.empty()) return std::nullopt;
  job.status = *status;
  job.message = text_of(object, "message");
  if (const auto environment = object.find("runtime_env"); environment != object.end() && environment->is_object())
    job.package_uri = text_of(*environment, "working_dir");
  if (const auto metadata = object.find("metadata"); metadata != object.end() && metadata->is_object()) {
    for (const auto& [name, value] : metadata->items()) {
      if (value.is_string()) job.metadata[name] = value;
    }
  }
  job.start = time_of(object, "start_time");
  job.end = time_of(object, "end_time");
  if (const auto code = object.find("driver_exit_code"); code != object.end() && code->is_number_integer())
    job.exit_code = code->get<int>();
  return job;
}

// Returns the last line of the server's answer, which may be a Python traceback.
std::string reason_in(const std::string& body) {
  std::string_view text = body;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  const std::size_t line = text.rfind('\n');
  return one_line(std::string(text.substr(line == std::string_view::npos ? 0 : line + 1).substr(0, kMaxReason)));
}

// Returns the maximum size of a package, such as "500.00 MiB", if the server's answer names it, or "".
std::string package_limit_in(const std::string& body) {
  static const std::regex limit(R"(exceeds the maximum size of (\d[\w.]*\w))");
  std::smatch match;
  if (!std::regex_search(body, match, limit)) return "";
  std::string size = match.str(1);
  if (const std::size_t unit = size.find_first_not_of("0123456789."); unit != std::string::npos) size.insert(unit, " ");
  return size;
}

}  // namespace

JobServer::JobServer(Access access, std::chrono::seconds patience) : access_(std::move(access)), patience_(patience) {}

http::Response JobServer::send(const http::Request& request) {
  // A request that may have had an effect is not repeated, unless repeating it changes nothing.
  const bool repeatable = request.method == "GET" || (request.method == "PUT" && !request.read_body);
  for (const auto begin = Clock::now();;) {
    try {
      return http::send(request);
    } catch (const http::ConnectionError& error) {
      if ((!repeatable && error.sent()) || Clock::now() - begin > patience_) {
        throw Error(
            fmt::format("cannot reach the Ray job server '{}': {}", http::without_user(access_.url), error.reason()));
      }
    }
    std::this_thread::sleep_for(kRetryAfter);
  }
}

http::Response JobServer::call(const char* method, const std::string& path, const json* body) {
  http::Request request;
  request.method = method;
  request.url = access_.url + path;
  request.headers = access_.headers;
  request.max_body = kMaxLogs;
  if (body != nullptr) {
    request.headers.push_back("Content-Type: application/json");
    request.body = body->dump(-1, ' ', false, json::error_handler_t::replace);
  }
  return send(request);
}

json JobServer::expect(const http::Response& response, const std::string& what) const {
  const std::string shown = http::without_user(access_.url);
  if (response.status == 401 || response.status == 403) {
    throw Error(
        fmt::format("cannot {}: the Ray job server '{}' requires a valid token; set RAY_AUTH_TOKEN", what, shown));
  }
  if (response.status < 200 || response.status > 299) {
    throw Error(fmt::format("cannot {}: the Ray job server '{}' answered {}: {}", what, shown, response.status,
                            reason_in(response.body)));
  }
  json answer = parse_foreign_json(response.body);
  if (answer.is_discarded()) throw Error(fmt::format("cannot {}: '{}' is not a Ray job server", what, shown));
  return answer;
}

void JobServer::check_version() {
  const json answer = expect(call("GET", "/api/version"), "read Ray's version");
  const std::string version = answer.is_object() ? text_of(answer, "ray_version") : "";
  int major = 0, minor = 0;
  if (std::sscanf(version.c_str(), "%d.%d", &major, &minor) != 2)
    throw Error(fmt::format("'{}' is not a Ray job server", http::without_user(access_.url)));
  if (std::pair(major, minor) < std::pair(kMinMajor, kMinMinor)) {
    throw Error(fmt::format("the cluster at '{}' runs Ray {}; {}.{} or later is required",
                            http::without_user(access_.url), one_line(version), kMinMajor, kMinMinor));
  }
}

std::string JobServer::upload(const std::string& name, const std::filesystem::path& zip, const std::stop_token& stop,
                              const std::function<void(std::uint64_t)>& progress) {
  const std::string path = "/api/packages/gcs/" + http::escape(name), uri = "gcs://" + name;
  const http::Response known = call("GET", path);
  if (known.status == 200) return uri;
  if (known.status != 404) expect(known, "look up the package");
  std::ifstream file(zip, std::ios::binary);
  std::uint64_t sent = 0;
  http::Request request;
  request.method = "PUT";
  request.url = access_.url + path;
  request.headers = access_.headers;
  request.timeout = std::chrono::milliseconds(0);
  request.stall = kStall;
  request.read_size = std::filesystem::file_size(zip);
  request.read_body = [&](char* bytes, std::size_t size) {
    if (stop.stop_requested()) throw http::Stopped();
    file.read(bytes, static_cast<std::streamsize>(size));
    const auto count = static_cast<std::size_t>(file.gcount());
    progress(sent += count);
    return count;
  };
  const http::Response response = send(request);
  const std::string limit = package_limit_in(response.body);
  if (response.status == 413 || !limit.empty()) {
    throw Error(fmt::format(
        "the package ({:.2f} MiB) is too large for the Ray cluster '{}'{}; list large files in .dockerignore, "
        "and read data from shared storage",
        static_cast<double>(request.read_size) / (1 << 20), http::without_user(access_.url),
        limit.empty() ? "" : ", which allows " + limit));
  }
  if (response.status < 200 || response.status > 299) expect(response, "upload the package");
  return uri;
}

void JobServer::put(const std::string& name, std::string bytes) {
  http::Request request;
  request.method = "PUT";
  request.url = access_.url + "/api/packages/gcs/" + http::escape(name);
  request.headers = access_.headers;
  request.body = std::move(bytes);
  const http::Response response = send(request);
  if (response.status < 200 || response.status > 299) expect(response, "upload data");
}

void JobServer::submit(const Submission& submission) {
  json runtime_env = submission.runtime_env;
  runtime_env["working_dir"] = submission.package_uri;
  runtime_env["env_vars"].update(submission.environment);
  const json body{{"submission_id", submission.id},
                  {"entrypoint", submission.entrypoint},
                  {"runtime_env", std::move(runtime_env)},
                  {"metadata", submission.metadata}};
  const http::Response response = call("POST", std::string(kJobs), &body);
  if (response.status >= 400 && response.body.find("already exists") != std::string::npos)
    throw UsageError(fmt::format("job '{}' already exists in the Ray cluster '{}'; delete it, or use another name",
                                 submission.id, http::without_user(access_.url)));
  expect(response, "start the job");
}

std::vector<Job> JobServer::list() {
  const json answer = expect(call("GET", std::string(kJobs)), "list the jobs");
  std::vector<Job> jobs;
  for (const json& object : answer) {
    if (auto job = parse_job(object)) jobs.push_back(std::move(*job));
  }
  std::ranges::sort(jobs, {}, [](const Job& job) { return std::pair(job.start, job.id); });
  return jobs;
}

std::optional<Job> JobServer::find(const std::string& id) {
  const http::Response response = call("GET", std::string(kJobs) + http::escape(id));
  if (response.status == 404) return std::nullopt;
  auto job = parse_job(expect(response, fmt::format("read job '{}'", id)));
  if (!job)
    throw Error(fmt::format("cannot read job '{}': '{}' is not a Ray job server", id, http::without_user(access_.url)));
  return job;
}

std::string JobServer::logs(const std::string& id) {
  http::Request request;
  request.url = access_.url + std::string(kJobs) + http::escape(id) + "/logs";
  request.headers = access_.headers;
  request.max_body = kMaxLogs;
  request.timeout = std::chrono::milliseconds(0);  // a log may be long
  request.stall = kStall;
  const http::Response response = send(request);
  const json answer = expect(response, fmt::format("read the output of job '{}'", id));
  return answer.is_object() ? text_of(answer, "logs") : "";
}

bool JobServer::stop(const std::string& id) {
  const json answer =
      expect(call("POST", std::string(kJobs) + http::escape(id) + "/stop"), fmt::format("stop job '{}'", id));
  return answer.is_object() && answer.value("stopped", false);
}

std::optional<Job> JobServer::wait_for_end(const std::string& id, std::optional<std::chrono::milliseconds> limit,
                                           const std::stop_token& stop) {
  const auto begin = Clock::now();
  std::optional<Job> job = find(id);
  while (job && !job->ended() && !stop.stop_requested() && (!limit || Clock::now() - begin < *limit)) {
    std::this_thread::sleep_for(Clock::now() - begin < kSoon ? kLookEvery : kLookEveryLater);
    job = find(id);
  }
  return job;
}

void JobServer::remove(const std::string& id) {
  if (const auto job = find(id); job && job->ended()) {
    const auto now = std::chrono::system_clock::now();
    if (!job->end || std::chrono::abs(now - *job->end) < kRecent) std::this_thread::sleep_for(kMonitorPeriod);
  }
  expect(call("DELETE", std::string(kJobs) + http::escape(id)), fmt::format("delete job '{}'", id));
}

}  // namespace adaptdl::ray
