#include "operator/jobs/membership_status.h"

#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "adaptdl/error.h"
#include "kube/api/json_fields.h"
#include "policy/base/policy.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;
using Role = MembershipState::Role;
using Replica = MembershipState::Replica;
using std::chrono::milliseconds;

constexpr std::array<std::pair<Role, std::string_view>, 4> kRoles = {
    {{Role::kLoading, "loading"}, {Role::kWaiting, "waiting"}, {Role::kMember, "member"}, {Role::kLeaving, "leaving"}}};

void put_time(json& object, const char* name, std::optional<Membership::Time> time) {
  if (!time || *time == Membership::Time()) return;
  object[name] =
      kube::to_string(kube::Time(std::chrono::duration_cast<kube::Time::duration>(time->time_since_epoch())));
}

std::optional<Membership::Time> time_at(const json& object, const char* name) {
  if (!object.contains(name)) return {};
  const auto time = kube::time_field(object, {name});
  if (!time) throw Error("not a time");
  return membership_time(*time);
}

void put_flag(json& object, const char* name, bool value) {
  if (value) object[name] = true;
}

json replica_json(const Replica& replica) {
  json object{{"number", replica.number}, {"node", replica.device}};
  for (const auto& [role, name] : kRoles) {
    if (role == replica.role) object["role"] = name;
  }
  put_time(object, "started", replica.started);
  if (replica.trains >= 0) object["trains"] = replica.trains;
  put_flag(object, "trained", replica.trained);
  put_flag(object, "broken", replica.broken);
  put_flag(object, "killed", replica.killed);
  put_flag(object, "late", replica.late);
  put_time(object, "leaveBy", replica.leave_by);
  return object;
}

// The value is checked, because another client may have written it.
int count_at(const json& object, const char* name, int min = 0) {
  constexpr std::int64_t kMax = 1'000'000;
  const json& value = object.at(name);
  if (!value.is_number_integer() || value < min || value > kMax) throw Error("not a count");
  return value.get<int>();
}

Replica parse_member(const json& object) {
  Replica replica{.number = count_at(object, "number"), .device = object.at("node").get<std::string>()};
  const std::string role = object.at("role").get<std::string>();
  bool known = false;
  for (const auto& [value, name] : kRoles) {
    if (name != role) continue;
    replica.role = value;
    known = true;
  }
  if (!known) throw Error("unknown role");
  replica.started = time_at(object, "started").value_or(Membership::Time());
  replica.trains = object.contains("trains") ? count_at(object, "trains", -1) : -1;
  replica.trained = object.value("trained", false);
  replica.broken = object.value("broken", false);
  replica.killed = object.value("killed", false);
  replica.late = object.value("late", false);
  replica.leave_by = time_at(object, "leaveBy");
  return replica;
}

}  // namespace

json to_json(const StoredMembership& membership) {
  const MembershipState& state = membership.state;
  json object{{"generation", state.generation}, {"next", state.next}, {"replicas", json::array()}};
  for (const Replica& replica : state.replicas) object["replicas"].push_back(replica_json(replica));
  put_time(object, "brokenSince", state.broken_since);
  put_flag(object, "regroup", state.regroup);
  put_flag(object, "incomplete", state.incomplete);
  put_time(object, "finishedAt", state.finished_at);
  put_flag(object, "cannotJoin", !state.can_join);
  put_time(object, "startAfter", state.start_after);
  if (state.newcomer_failures > 0) object["newcomerFailures"] = state.newcomer_failures;
  if (!state.noticed.empty()) object["noticed"] = state.noticed;
  if (membership.back_off.pause.count() > 0) object["pauseMilliseconds"] = membership.back_off.pause.count();
  put_time(object, "failedAt", membership.back_off.failed_at);
  put_time(object, "noGrowthUntil", membership.no_growth_until);
  return object;
}

std::optional<StoredMembership> parse_membership(const json& job) {
  const json& object = kube::field(job, {"status", "membership"});
  if (object.is_null()) return {};
  try {
    StoredMembership stored;
    MembershipState& state = stored.state;
    state.generation = count_at(object, "generation");
    state.next = count_at(object, "next");
    std::set<int> numbers;
    for (const json& each : object.at("replicas")) {
      state.replicas.push_back(parse_member(each));
      const int number = state.replicas.back().number;
      if (number >= state.next || !numbers.insert(number).second) throw Error("not a new number");
    }
    if (numbers.size() > 2 * kMaxReplicasPerJob) throw Error("too many replicas");
    state.broken_since = time_at(object, "brokenSince");
    state.regroup = object.value("regroup", false);
    state.incomplete = object.value("incomplete", state.regroup);
    state.finished_at = time_at(object, "finishedAt");
    state.can_join = !object.value("cannotJoin", false);
    state.start_after = time_at(object, "startAfter").value_or(Membership::Time());
    state.newcomer_failures = object.contains("newcomerFailures") ? count_at(object, "newcomerFailures") : 0;
    state.noticed = object.value("noticed", "");
    stored.back_off.pause = milliseconds(object.value("pauseMilliseconds", milliseconds::rep(0)));
    stored.back_off.failed_at = time_at(object, "failedAt").value_or(Membership::Time());
    stored.no_growth_until = time_at(object, "noGrowthUntil");
    return stored;
  } catch (const json::exception&) {
    throw Error("status.membership is invalid");
  } catch (const Error&) {
    throw Error("status.membership is invalid");
  }
}

}  // namespace adaptdl::sched
