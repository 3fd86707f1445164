#include "local/devices/agent_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "adaptdl/error.h"
#include "adaptdl/sched_hints.h"
#include "base/foreign_json.h"
#include "local/devices/run_share.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;

constexpr int kMaxNesting = 8;
constexpr std::size_t kMaxTextLength = 1024, kMaxIdLength = 40;

std::string line_of(const json& message) { return message.dump(-1, ' ', true, json::error_handler_t::replace) + "\n"; }

json parse_object(std::string_view line) {
  if (is_nested_deeper(line, kMaxNesting)) throw UsageError("the message is nested too deeply");
  json message = parse_foreign_json(line);
  if (message.is_discarded()) throw UsageError("the message is not valid JSON");
  if (!message.is_object()) throw UsageError("the message is not a JSON object");
  return message;
}

const json& member(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) throw UsageError(fmt::format("field '{}' is missing", name));
  return *found;
}

std::string text(const json& object, const char* name) {
  const json& value = member(object, name);
  if (!value.is_string() || value.get_ref<const std::string&>().size() > kMaxTextLength)
    throw UsageError(fmt::format("field '{}' must be a string of at most {} bytes", name, kMaxTextLength));
  return value.get<std::string>();
}

double number(const json& object, const char* name) {
  const json& value = member(object, name);
  if (!value.is_number() || !std::isfinite(value.get<double>()))
    throw UsageError(fmt::format("field '{}' must be a number", name));
  return value.get<double>();
}

std::int64_t whole(const json& object, const char* name, std::int64_t low, std::int64_t high) {
  const double value = number(object, name);
  if (value != std::trunc(value) || value < static_cast<double>(low) || value > static_cast<double>(high))
    throw UsageError(fmt::format("field '{}' must be an integer from {} to {}", name, low, high));
  return static_cast<std::int64_t>(value);
}

bool flag(const json& object, const char* name) {
  const json& value = member(object, name);
  if (!value.is_boolean()) throw UsageError(fmt::format("field '{}' must be true or false", name));
  return value.get<bool>();
}

std::vector<std::string> devices(const json& object, const char* name) {
  const json& value = member(object, name);
  if (!value.is_array() || value.size() > kMaxAgentDevices)
    throw UsageError(fmt::format("field '{}' must be a list of at most {} devices", name, kMaxAgentDevices));
  std::vector<std::string> devices;
  std::set<std::string> seen;
  for (const json& each : value) {
    const bool fine = each.is_string() && !each.get_ref<const std::string&>().empty() &&
                      each.get_ref<const std::string&>().size() <= kMaxTextLength;
    if (!fine || !seen.insert(each.get<std::string>()).second)
      throw UsageError(fmt::format("field '{}' must be a list of distinct device names", name));
    devices.push_back(each.get<std::string>());
  }
  return devices;
}

constexpr std::int64_t kMaxExactInteger = std::int64_t{1} << 53;

DeviceUser parse_user(const json& run) {
  if (!run.is_object()) throw UsageError("field 'run' must be an object");
  DeviceUser user;
  user.name = text(run, "name");
  user.kind = text(run, "kind");
  if (user.kind != "gpu" && user.kind != "cpu") throw UsageError("field 'kind' must be gpu or cpu");
  user.min = static_cast<int>(whole(run, "min", 1, kMaxReplicasPerJob));
  user.max = static_cast<int>(whole(run, "max", user.min, kMaxReplicasPerJob));
  user.devices = devices(run, "devices");
  user.held = devices(run, "held");
  user.pinned = flag(run, "pinned");
  user.submitted = number(run, "submitted");
  user.service = number(run, "service");
  user.changes = static_cast<int>(whole(run, "changes", 0, 1'000'000'000));
  user.hints = member(run, "hints");
  // Runs of an earlier version do not send a weight.
  if (run.contains("weight")) user.weight = number(run, "weight");
  if (user.weight < kMinRunWeight || user.weight > kMaxRunWeight)
    throw UsageError(fmt::format("field 'weight' must be a number from {} to {}", kMinRunWeight, kMaxRunWeight));
  if (const auto preferred = run.find("preferred"); preferred != run.end() && !preferred->is_null())
    user.preferred_count = static_cast<int>(whole(run, "preferred", user.min, user.max));
  check_sched_hints(user.hints);
  return user;
}

}  // namespace

std::string to_line(const RunMessage& message) {
  if (message.leaves) return line_of({{"id", message.id}, {"leaves", true}});
  const DeviceUser& user = message.user;
  return line_of({{"id", message.id},
                  {"seen", message.seen},
                  {"fairness", message.fairness},
                  {"run",
                   {{"name", user.name},
                    {"kind", user.kind},
                    {"min", user.min},
                    {"max", user.max},
                    {"devices", user.devices},
                    {"held", user.held},
                    {"pinned", user.pinned},
                    {"submitted", user.submitted},
                    {"service", user.service},
                    {"changes", user.changes},
                    {"hints", user.hints},
                    {"weight", user.weight},
                    {"preferred", user.preferred_count ? json(*user.preferred_count) : json()}}}});
}

std::string to_line(const DeviceShare& share) {
  return line_of({{"number", share.number}, {"devices", share.devices}, {"reason", share.reason}});
}

std::string error_line(std::string_view what) { return line_of({{"error", what}}); }

RunMessage parse_run_message(std::string_view line) {
  const json parsed = parse_object(line);
  RunMessage message;
  message.id = text(parsed, "id");
  const bool fine = !message.id.empty() && message.id.size() <= kMaxIdLength &&
                    std::ranges::all_of(message.id, [](unsigned char c) { return std::isalnum(c) != 0; });
  if (!fine) throw UsageError(fmt::format("field 'id' must be 1 to {} letters and digits", kMaxIdLength));
  if (parsed.contains("leaves")) {
    message.leaves = flag(parsed, "leaves");
    return message;
  }
  message.seen = static_cast<std::uint64_t>(whole(parsed, "seen", 0, kMaxExactInteger));
  message.fairness = number(parsed, "fairness");
  message.user = parse_user(member(parsed, "run"));
  return message;
}

DeviceShare parse_share(std::string_view line) {
  const json parsed = parse_object(line);
  if (parsed.contains("error")) throw Error("the agent reported: " + text(parsed, "error"));
  return {static_cast<std::uint64_t>(whole(parsed, "number", 0, kMaxExactInteger)), devices(parsed, "devices"),
          text(parsed, "reason")};
}

}  // namespace adaptdl::sched
