#include "local/record/run_status.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>

namespace adaptdl::sched {
namespace {

using nlohmann::json;
using Time = RunStatus::Time;

std::string to_text(Time time) {
  const auto count = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(count / 1000);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(seconds), count % 1000);
}

std::optional<Time> to_time(const json& value) {
  if (!value.is_string()) return std::nullopt;
  std::tm parts{};
  const char* rest = ::strptime(value.get_ref<const std::string&>().c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  const double fraction = *rest == '.' ? std::strtod(rest, nullptr) : 0;
  return std::chrono::system_clock::from_time_t(::timegm(&parts)) +
         std::chrono::milliseconds(std::lround(fraction * 1000));
}

// Sets `target` to the field's value if the field exists and has the type of `target`.
template <typename T>
void take_field(const json& object, const char* name, T& target) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return;
  try {
    target = found->get<T>();
  } catch (const json::exception&) {
    return;
  }
}

template <typename T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

}  // namespace

bool has_ended(const RunStatus& status) {
  static constexpr std::string_view kEnds[] = {"done", "failed", "stopped", "lost"};
  return std::ranges::find(kEnds, status.state) != std::end(kEnds);
}

json to_json(const RunStatus& status) {
  return {{"name", status.name},
          {"state", status.state},
          {"why", status.why},
          {"replicas", status.replicas},
          {"wanted", status.wanted},
          {"min", status.min},
          {"max", status.max},
          {"devices", status.devices},
          {"progress", status.progress},
          {"restarts", status.restarts},
          {"device_seconds", status.device_seconds},
          {"started", to_text(status.started)},
          {"ended", status.ended ? json(to_text(*status.ended)) : json()},
          {"exit_code", or_null(status.exit_code)},
          {"pid", status.pid},
          {"host", status.host},
          {"checkpoints", status.checkpoints},
          {"logs", status.logs},
          {"command", status.command},
          {"resume", status.resume}};
}

RunStatus run_status(const json& object) {
  RunStatus status;
  if (!object.is_object()) return status;
  take_field(object, "name", status.name);
  take_field(object, "state", status.state);
  take_field(object, "why", status.why);
  take_field(object, "replicas", status.replicas);
  take_field(object, "wanted", status.wanted);
  take_field(object, "min", status.min);
  take_field(object, "max", status.max);
  take_field(object, "devices", status.devices);
  if (object.contains("progress") && object["progress"].is_object()) status.progress = object["progress"];
  take_field(object, "restarts", status.restarts);
  take_field(object, "device_seconds", status.device_seconds);
  if (const auto time = to_time(object.value("started", json()))) status.started = *time;
  status.ended = to_time(object.value("ended", json()));
  if (int code = -1; take_field(object, "exit_code", code), code >= 0) status.exit_code = code;
  take_field(object, "pid", status.pid);
  take_field(object, "host", status.host);
  take_field(object, "checkpoints", status.checkpoints);
  take_field(object, "logs", status.logs);
  take_field(object, "command", status.command);
  take_field(object, "resume", status.resume);
  return status;
}

}  // namespace adaptdl::sched
