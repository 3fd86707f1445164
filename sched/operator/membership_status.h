// The members of a running job in its status, `status.membership`: what the operator has to know to continue changing
// them after it was replaced (membership/membership.h).
//
// Times are RFC 3339 strings, and members without a field have its default. The field is missing until the first change
// of the members of a group.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "kube/timestamp.h"
#include "membership/membership.h"

namespace adaptdl::sched {

struct StoredMembership {
  MembershipState state;
  BackOff back_off;
  std::optional<Membership::Time> no_growth_until;  // several newcomers failed in a row

  bool operator==(const StoredMembership& other) const {
    return state == other.state && back_off.pause == other.back_off.pause &&
           back_off.failed_at == other.back_off.failed_at && no_growth_until == other.no_growth_until;
  }
};

// None: the job has none. Throws Error if another client wrote something else there.
std::optional<StoredMembership> parse_membership(const nlohmann::json& job);
nlohmann::json to_json(const StoredMembership& membership);

// The state machine's clock is that of the cluster.
inline Membership::Time membership_time(kube::Time time) {
  return Membership::Time(std::chrono::duration_cast<Membership::Time::duration>(time.time_since_epoch()));
}

}  // namespace adaptdl::sched
