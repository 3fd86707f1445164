#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "simulation/cycle_log.h"

namespace adaptdl::cli {
namespace {

// Keys stay in the order in which they are documented.
using Json = nlohmann::ordered_json;
using sched::CycleJob;
using sched::CycleRecord;
using sched::JobState;
using sched::NodeInfo;

constexpr const char* kGpu = "nvidia.com/gpu";
constexpr std::array kStates = {"waiting", "restarting", "running", "completed"};

Json job_json(const CycleJob& job) {
  Json out{{"name", job.name},
           {"application", job.application},
           {"state", kStates[static_cast<std::size_t>(job.state)]},
           {"allocation", job.allocation},
           {"submission_time", job.submission_time},
           {"batch_size", job.batch_size},
           {"accum_steps", job.accum_steps},
           {"epoch", job.epoch},
           {"progress", job.progress},
           {"restarts", job.restarts},
           {"reason", job.reason}};
  if (job.completion_time) out["completion_time"] = *job.completion_time;
  return out;
}

// Reads the members of an object. Errors name the object and the member.
class Reader {
 public:
  Reader(const Json& object, std::string what) : object_(object), what_(std::move(what)) {
    if (!object.is_object()) throw Error(fmt::format("{} must be an object, got {}", what_, object.type_name()));
  }

  std::string text(const char* key) const {
    const Json& value = member(key);
    if (!value.is_string()) wrong(key, value, "a string");
    return value.get<std::string>();
  }

  double number(const char* key) const {
    const Json& value = member(key);
    if (!value.is_number()) wrong(key, value, "a number");
    return value.get<double>();
  }

  int count(const char* key, int max) const {
    const double value = number(key);
    if (value < 0 || value > max || value != std::floor(value))
      throw Error(fmt::format("{}: '{}' is {}, not an integer from 0 to {}", what_, key, value, max));
    return static_cast<int>(value);
  }

  const Json& list(const char* key) const {
    const Json& value = member(key);
    if (!value.is_array()) wrong(key, value, "an array");
    return value;
  }

  std::optional<double> optional_number(const char* key) const {
    return object_.contains(key) ? std::optional(number(key)) : std::nullopt;
  }

  std::string optional_text(const char* key) const { return object_.contains(key) ? text(key) : ""; }

 private:
  const Json& member(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) throw Error(fmt::format("{} has no '{}'", what_, key));
    return *found;
  }

  [[noreturn]] void wrong(const char* key, const Json& value, const char* wanted) const {
    throw Error(fmt::format("{}: '{}' must be {}, got {}", what_, key, wanted, value.type_name()));
  }

  const Json& object_;
  std::string what_;
};

CycleJob parse_job(const Json& value) {
  const Reader reader(value, "a job");
  CycleJob job;
  job.name = reader.text("name");
  job.application = reader.text("application");
  const std::string state = reader.text("state");
  const auto found = std::ranges::find(kStates, state);
  if (found == kStates.end()) throw Error(fmt::format("job '{}' has the unknown state '{}'", job.name, state));
  job.state = static_cast<JobState>(found - kStates.begin());
  for (const Json& node : reader.list("allocation")) {
    if (!node.is_string())
      throw Error(
          fmt::format("the allocation of job '{}' must contain node names, got {}", job.name, node.type_name()));
    job.allocation.push_back(node.get<std::string>());
  }
  job.submission_time = reader.number("submission_time");
  job.batch_size = static_cast<std::size_t>(reader.count("batch_size", 1'000'000'000));
  job.accum_steps = reader.count("accum_steps", 1'000'000'000);
  job.epoch = reader.count("epoch", 1'000'000'000);
  job.progress = reader.number("progress");
  job.restarts = reader.count("restarts", 1'000'000'000);
  job.reason = reader.text("reason");
  job.completion_time = reader.optional_number("completion_time");
  return job;
}

}  // namespace

std::string cycle_line(const CycleRecord& record) {
  Json nodes = Json::array(), jobs = Json::array();
  for (const NodeInfo& node : record.nodes) {
    const auto gpus = node.resources.find(kGpu);
    Json& out =
        nodes.emplace_back(Json{{"name", node.name}, {"gpus", gpus == node.resources.end() ? 0 : gpus->second}});
    if (!node.gpu_type.empty()) out["gpu_type"] = node.gpu_type;
  }
  for (const CycleJob& job : record.jobs) jobs.push_back(job_json(job));
  const Json line{{"workload", record.workload},   {"policy", record.policy}, {"time", record.time},
                  {"completed", record.completed}, {"total", record.total},   {"nodes", std::move(nodes)},
                  {"jobs", std::move(jobs)}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

CycleRecord parse_cycle(const std::string& line) {
  const Json parsed = Json::parse(line, nullptr, false);
  if (parsed.is_discarded()) throw Error("invalid JSON");
  const Reader reader(parsed, "the cycle");
  CycleRecord record;
  record.workload = reader.text("workload");
  record.policy = reader.text("policy");
  record.time = reader.number("time");
  record.completed = static_cast<std::size_t>(reader.count("completed", 1'000'000'000));
  record.total = static_cast<std::size_t>(reader.count("total", 1'000'000'000));
  for (const Json& value : reader.list("nodes")) {
    const Reader node(value, "a node");
    record.nodes.push_back({.name = node.text("name"),
                            .resources = {{kGpu, node.count("gpus", 100'000)}},
                            .gpu_type = node.optional_text("gpu_type")});
  }
  for (const Json& value : reader.list("jobs")) record.jobs.push_back(parse_job(value));
  return record;
}

void read_cycle_log(const std::filesystem::path& file, const std::function<void(CycleRecord&)>& visit) {
  std::ifstream input(file);
  if (!input || std::filesystem::is_directory(file))
    throw Error(fmt::format("cannot read '{}': {}", file.string(),
                            std::filesystem::is_directory(file) ? "is a directory" : std::strerror(errno)));
  std::size_t number = 0;
  for (std::string line; std::getline(input, line);) {
    ++number;
    try {
      CycleRecord record = parse_cycle(line);
      visit(record);
    } catch (const Error& error) {
      throw Error(fmt::format("{}:{}: {}; expected a file written by `adaptdl simulate --output`", file.string(),
                              number, error.what()));
    }
  }
  if (number == 0)
    throw Error(
        fmt::format("{}:1: file is empty; expected a file written by `adaptdl simulate --output`", file.string()));
}

}  // namespace adaptdl::cli
