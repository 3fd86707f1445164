#include "operator/jobs/job_status.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kube/api/json_fields.h"
#include "kube/jobs/job_usage.h"

namespace adaptdl::sched {
namespace {

using kube::field;
using kube::int_field;
using kube::text_field;
using kube::Time;
using nlohmann::json;

json status_of(const json& job) {
  const json& status = field(job, {"status"});
  return status.is_object() ? status : json::object();
}

// Returns the merge patch that turns `before` into `after`: the changed values, and null for each removed value.
json difference(const json& before, const json& after) {
  json patch = json::object();
  for (const auto& [name, value] : after.items()) {
    const auto old = before.find(name);
    if (old != before.end() && old->is_object() && value.is_object()) {
      if (json inner = difference(*old, value); !inner.empty()) patch[name] = std::move(inner);
    } else if (old == before.end() || *old != value) {
      patch[name] = value;
    }
  }
  for (const auto& [name, value] : before.items()) {
    if (!after.contains(name)) patch[name] = nullptr;
  }
  return patch;
}

const json* condition_of(const json& status, const std::string& type) {
  const auto found = status.find("conditions");
  if (found == status.end() || !found->is_array()) return nullptr;
  for (const json& condition : *found) {
    if (text_field(condition, {"type"}) == type) return &condition;
  }
  return nullptr;
}

}  // namespace

JobStatus::JobStatus(const json& job, Time now) : before_(status_of(job)), after_(before_), now_(now) {
  for (const char* name : {"phaseSince", "troubleSince", "unplaceableSince"}) correct_time(name, {});
  correct_time("retryAfter", kMaxPause);
}

// Replaces a time that is invalid or later than this operator could have set it, so that the job does not wait for it.
// Such a time appears if another client wrote it or the clock was set back.
void JobStatus::correct_time(const char* name, std::chrono::seconds ahead) {
  // The clocks of two operators may differ.
  constexpr std::chrono::minutes kClockDifference{1};
  if (!after_.contains(name)) return;
  const auto time = kube::time_field(after_, {name});
  if (!time || *time > now_ + ahead + kClockDifference) after_[name] = kube::to_string(now_ + ahead);
}

std::string JobStatus::reason() const { return text_field(after_, {"reason"}); }
std::string JobStatus::message() const { return text_field(after_, {"message"}); }
Time JobStatus::phase_since() const { return kube::time_field(after_, {"phaseSince"}).value_or(now_); }
int JobStatus::retries() const { return std::max(int_field(after_, {"retries"}).value_or(0), 0); }
std::optional<Time> JobStatus::retry_after() const { return kube::time_field(after_, {"retryAfter"}); }
std::optional<Time> JobStatus::unplaceable_since() const { return kube::time_field(after_, {"unplaceableSince"}); }

Time JobStatus::trouble_since(bool is) {
  if (!is) after_.erase("troubleSince");
  const auto since = kube::time_field(after_, {"troubleSince"});
  if (is && !since) after_["troubleSince"] = kube::to_string(now_);
  return since.value_or(now_);
}

void JobStatus::set_hints(const json& hints) {
  if (hints.is_object() && !hints.empty()) after_["train"] = hints;
}

void JobStatus::set_allocation(const Allocation& nodes) {
  if (nodes.empty() && !after_.contains("allocation")) return;
  after_["allocation"] = nodes;
}

bool JobStatus::created() const {
  return after_.contains("group") && int_field(after_, {"createdGroup"}) == int_field(after_, {"group"});
}

void JobStatus::set_created() { after_["createdGroup"] = after_["group"]; }

void JobStatus::set_group(int group) { after_["group"] = group; }

void JobStatus::set_ready(int replicas) { after_["readyReplicas"] = replicas; }

void JobStatus::set_membership(const json& membership) { after_["membership"] = membership; }

void JobStatus::set_members(int replicas) {
  if (int_field(after_, {"replicas"}) == replicas) return;
  after_["attainedService"] = attained_service({{"status", after_}}, now_);
  after_["phaseSince"] = kube::to_string(now_);
  after_["replicas"] = replicas;
}

void JobStatus::set_reason(const std::string& reason, const std::string& message) {
  after_["reason"] = reason;
  after_["message"] = message;
}

void JobStatus::set_unplaceable(bool is) {
  if (!is) {
    after_.erase("unplaceableSince");
  } else if (!unplaceable_since()) {
    after_["unplaceableSince"] = kube::to_string(now_);
  }
}

void JobStatus::set_phase(const std::string& phase, const std::string& reason, const std::string& message) {
  const bool ran = text_field(after_, {"phase"}) == "Running";
  if (ran && phase != "Running") after_["attainedService"] = attained_service({{"status", after_}}, now_);
  after_.erase("troubleSince");
  after_["phase"] = phase;
  after_["phaseSince"] = kube::to_string(now_);
  set_reason(reason, message);
}

bool JobStatus::holds() const { return kube::parse_usage({{"status", after_}}).since.has_value(); }

void JobStatus::hold(const UsageRate& rate, Time when) {
  if (rate.empty()) return;
  kube::JobUsage usage = kube::parse_usage({{"status", after_}});
  usage.hold(rate.gpus, rate.cost_per_hour, when);
  after_["usage"] = kube::to_json(usage);
}

void JobStatus::change_hold(const UsageRate& rate) {
  const kube::JobUsage usage = kube::parse_usage({{"status", after_}});
  constexpr double kRounding = 1e-9;
  const auto near = [](double a, double b) { return std::abs(a - b) <= kRounding * std::max(1.0, std::abs(b)); };
  if (near(usage.gpus, rate.gpus) && near(usage.cost_per_hour.value_or(0), rate.cost_per_hour.value_or(0))) return;
  hold(rate, now_);
}

void JobStatus::release(Time when) {
  if (!holds()) return;
  kube::JobUsage usage = kube::parse_usage({{"status", after_}});
  usage.release(when);
  after_["usage"] = kube::to_json(usage);
}

void JobStatus::start(int group, const Allocation& nodes, const std::string& why) {
  set_phase("Starting", "Allocated", why);
  after_["group"] = group;
  after_["allocation"] = nodes;
  after_["replicas"] = nodes.size();
  after_["readyReplicas"] = 0;
  for (const char* name : {"retryAfter", "membership"}) after_.erase(name);
}

void JobStatus::stop(const std::string& reason, const std::string& message, const Allocation& next, int retries,
                     std::chrono::seconds wait) {
  set_phase("Stopping", reason, message);
  after_["allocation"] = next;
  after_["readyReplicas"] = 0;
  after_["retries"] = retries;
  if (wait.count() > 0) after_["retryAfter"] = kube::to_string(now_ + wait);
}

void JobStatus::end_pause() { after_.erase("retryAfter"); }

void JobStatus::finish(const std::string& phase, const std::string& reason, const std::string& message) {
  set_phase(phase, reason, message);
  after_["allocation"] = json::array();
  after_["readyReplicas"] = 0;
  // AdaptDL's Python command expects a UTC offset and cannot parse the letter Z.
  std::string when = kube::to_string(now_);
  when.pop_back();
  after_["completionTimestamp"] = when + "+00:00";
  for (const char* name : {"retryAfter", "unplaceableSince", "retries", "membership"}) after_.erase(name);
}

void JobStatus::set_conditions(json& status) const {
  const std::string phase = text_field(status, {"phase"}), reason = text_field(status, {"reason"});
  const bool ended = phase == "Succeeded" || phase == "Failed";
  const bool allocated = !kube::array_field(status, {"allocation"}).empty();
  const std::string message = text_field(status, {"message"});
  json conditions = json::array();
  const auto add = [&](const char* type, bool is, const std::string& why, const std::string& text) {
    const char* const value = is ? "True" : "False";
    const json* const old = condition_of(before_, type);
    const bool same = old != nullptr && text_field(*old, {"status"}) == value;
    std::string since = same ? text_field(*old, {"lastTransitionTime"}) : "";
    if (!kube::parse_time(since)) since = kube::to_string(now_);
    json condition{{"type", type}, {"status", value}, {"reason", why}, {"lastTransitionTime", since}};
    // Kubernetes 1.20 reads an empty string as null and rejects it.
    if (!text.empty()) condition["message"] = text;
    conditions.push_back(std::move(condition));
  };
  const std::string why = reason.empty() ? phase : reason;
  add("Allocated", allocated, allocated ? "Allocated" : why, ended ? "" : message);
  add("Running", phase == "Running", phase, "");
  const bool suspended = phase == "Suspended";
  if (suspended || condition_of(before_, "Suspended") != nullptr)
    add("Suspended", suspended, phase, suspended ? message : "");
  add("Completed", ended, ended ? why : phase, ended ? message : "");
  status["conditions"] = conditions;
}

json JobStatus::patch() const {
  json after = after_;
  if (after != before_) set_conditions(after);
  json change = difference(before_, after);
  return change.empty() ? json() : change;
}

double attained_service(const json& job, Time now) {
  const json& before = field(job, {"status", "attainedService"});
  double total = before.is_number() ? std::max(before.get<double>(), 0.0) : 0.0;
  if (text_field(job, {"status", "phase"}) != "Running") return total;
  const auto since = kube::time_field(job, {"status", "phaseSince"});
  const int replicas = int_field(job, {"status", "replicas"}).value_or(0);
  if (since && now > *since) total += replicas * std::chrono::duration<double>(now - *since).count();
  return total;
}

bool waits_for_first_fit(const kube::Job& job) {
  if (!job.allocation.empty()) return false;
  if (job.phase.empty()) return true;
  const bool decided = job.reason == "Waiting" || job.reason == "Reallocated" || job.reason == "Unschedulable";
  return job.phase == "Pending" && !decided;
}

std::optional<Time> retry_after(const json& job) { return kube::time_field(job, {"status", "retryAfter"}); }

}  // namespace adaptdl::sched
