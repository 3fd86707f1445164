// Stores the members of a running job in its status (`status.membership`), so that a new operator can continue to
// change them (membership/membership.h).
//
// Times are RFC 3339 strings, and missing fields of a member have their default values. `status.membership` is missing
// until the members of a group first change.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "kube/api/timestamp.h"
#include "membership/membership.h"

namespace adaptdl::sched {

struct StoredMembership {
  MembershipState state;
  BackOff back_off;
  std::optional<Membership::Time> no_growth_until;  // set after several newcomers have failed in a row

  bool operator==(const StoredMembership& other) const {
    return state == other.state && back_off.pause == other.back_off.pause &&
           back_off.failed_at == other.back_off.failed_at && no_growth_until == other.no_growth_until;
  }
};

// Returns nothing if the job has no membership. Throws Error if the membership is invalid, because another client wrote
// it.
std::optional<StoredMembership> parse_membership(const nlohmann::json& job);
nlohmann::json to_json(const StoredMembership& membership);

// Converts a time of the cluster's clock to the type that the state machine uses.
inline Membership::Time membership_time(kube::Time time) {
  return Membership::Time(std::chrono::duration_cast<Membership::Time::duration>(time.time_since_epoch()));
}

}  // namespace adaptdl::sched
