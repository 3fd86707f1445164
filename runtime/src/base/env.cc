#include "adaptdl/env.h"

#include <fmt/core.h>

#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <limits>
#include <string_view>

#include "adaptdl/error.h"

namespace adaptdl::env {
namespace {

std::optional<std::string> text(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

// Returns the variable's value as an integer from `low` to `high`. `note`, if given, explains the bounds in the error.
std::optional<int> number(const char* name, int low, int high, std::string_view note = "") {
  const auto value = text(name);
  if (!value) return std::nullopt;
  int result = 0;
  const char* end = value->data() + value->size();
  const auto [rest, error] = std::from_chars(value->data(), end, result);
  if (error != std::errc{} || rest != end || result < low || result > high) {
    const std::string range = high == std::numeric_limits<int>::max() ? fmt::format("of at least {}", low)
                                                                      : fmt::format("from {} to {}", low, high);
    throw UsageError(fmt::format("{} must be an integer {}{}, not '{}'", name, range, note, *value));
  }
  return result;
}

// Returns the variable's value as a duration above 0.
std::chrono::milliseconds timeout(const char* name, std::chrono::milliseconds unset) {
  const auto value = text(name);
  if (!value) return unset;
  const auto duration = parse_duration(*value, name);
  if (duration == duration.zero())
    throw UsageError(fmt::format("{} must be a duration above 0, not '{}'", name, *value));
  return duration;
}

constexpr int kNoLimit = std::numeric_limits<int>::max();

struct Membership {
  int rank, replicas, nodes;
};

// Each change replaces the whole object. Earlier objects are never freed, because other threads may still read them.
std::atomic<const Membership*> membership{nullptr};

}  // namespace

std::optional<std::string> checkpoint_path() { return text("ADAPTDL_CHECKPOINT_PATH"); }
std::optional<std::string> share_path() { return text("ADAPTDL_SHARE_PATH"); }
std::optional<std::string> job_id() { return text("ADAPTDL_JOB_ID"); }
std::string master_addr() { return text("ADAPTDL_MASTER_ADDR").value_or("0.0.0.0"); }
int master_port() { return number("ADAPTDL_MASTER_PORT", 0, 65535).value_or(0); }

int replica_rank() {
  if (const auto* now = membership.load()) return now->rank;
  const int replicas = num_replicas();
  const std::string note = fmt::format(" (ADAPTDL_NUM_REPLICAS is {})", replicas);
  return number("ADAPTDL_REPLICA_RANK", 0, replicas - 1, note).value_or(0);
}

int num_nodes() {
  if (const auto* now = membership.load()) return now->nodes;
  const int replicas = num_replicas();
  const std::string note = fmt::format(" (ADAPTDL_NUM_REPLICAS is {})", replicas);
  return number("ADAPTDL_NUM_NODES", 1, replicas, note).value_or(replicas);
}

int num_replicas() {
  if (const auto* now = membership.load()) return now->replicas;
  return number("ADAPTDL_NUM_REPLICAS", 1, kNoLimit).value_or(1);
}

void set_membership(int rank, int replicas, int nodes) noexcept {
  static std::deque<Membership> kept;
  membership = &kept.emplace_back(Membership{rank, replicas, nodes});
}

int num_restarts() { return number("ADAPTDL_NUM_RESTARTS", 0, kNoLimit).value_or(0); }
std::optional<std::string> supervisor_url() { return text("ADAPTDL_SUPERVISOR_URL"); }
std::optional<std::string> supervisor_token() { return text("ADAPTDL_SUPERVISOR_TOKEN"); }
std::optional<std::string> sched_version() { return text("ADAPTDL_SCHED_VERSION"); }
std::optional<std::string> tensorboard_logdir() { return text("ADAPTDL_TENSORBOARD_LOGDIR"); }
std::optional<std::string> replica_id() { return text("ADAPTDL_REPLICA_ID"); }
int generation() { return number("ADAPTDL_GENERATION", 0, kNoLimit).value_or(0); }

std::chrono::milliseconds checkpoint_every() {
  const auto value = text("ADAPTDL_CHECKPOINT_EVERY");
  return value ? parse_duration(*value, "ADAPTDL_CHECKPOINT_EVERY") : std::chrono::minutes(5);
}

int checkpoint_keep() { return number("ADAPTDL_CHECKPOINT_KEEP", 1, kNoLimit).value_or(2); }

std::optional<std::string> backend() {
  const auto value = text("ADAPTDL_BACKEND");
  if (value && *value != "gloo" && *value != "nccl")
    throw UsageError(fmt::format("ADAPTDL_BACKEND must be gloo or nccl, not '{}'", *value));
  return value;
}

bool from_ray() { return number("ADAPTDL_RAY", 0, 1).value_or(0) == 1; }
std::optional<int> status_fd() { return number("ADAPTDL_STATUS_FD", 0, kNoLimit); }
std::optional<std::string> results_file() { return text("ADAPTDL_RESULTS_FILE"); }

std::chrono::milliseconds collective_timeout() {
  return timeout("ADAPTDL_COLLECTIVE_TIMEOUT", std::chrono::minutes(30));
}
std::chrono::milliseconds connect_timeout() { return timeout("ADAPTDL_CONNECT_TIMEOUT", std::chrono::minutes(5)); }

std::chrono::milliseconds parse_duration(const std::string& text, const std::string& what) {
  const auto refuse = [&](std::string_view why) {
    throw UsageError(fmt::format("{} must be {}, not '{}'", what, why, text));
  };
  double count = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, count, std::chars_format::fixed);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const double milliseconds_a_unit = unit == "ms"                  ? 1
                                     : unit.empty() || unit == "s" ? 1e3
                                     : unit == "m"                 ? 60e3
                                     : unit == "h"                 ? 3600e3
                                     : unit == "d"                 ? 86400e3
                                                                   : 0;
  // from_chars also accepts "inf", "nan" and a minus sign; a duration begins with a digit or a decimal point.
  const bool begins_well = !text.empty() && ((text[0] >= '0' && text[0] <= '9') || text[0] == '.');
  if (error == std::errc::result_out_of_range) refuse("at most 100 years");
  if (error != std::errc{} || !begins_well || milliseconds_a_unit == 0)
    refuse("a duration such as 90s, 1.5h or 500ms (units ms, s, m, h, d; a bare number is seconds)");
  const double milliseconds = count * milliseconds_a_unit;
  // Adding 100 years to any clock's current time does not overflow.
  if (milliseconds > 100 * 365 * 86400e3) refuse("at most 100 years");
  // Round up, because a tiny duration must not become 0, which has a special meaning.
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(milliseconds)));
}

}  // namespace adaptdl::env
