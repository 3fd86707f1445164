// The replicas that a job has and those that it should have. Membership (membership.h) decides how to get from one to
// the other.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "membership/back_off.h"

namespace adaptdl::sched {

// The replicas that a run should have: one on each of these devices. A device that is listed twice gets two replicas,
// and an empty name means no particular device. The run does not continue with fewer than `min` members.
struct MembershipTarget {
  std::vector<std::string> devices;
  int min = 1;
  bool by_user = false;  // requested by a user, so it need not wait for restart_after
};

// How the members differ from the target. Replicas are identified by their numbers.
struct MembershipDifference {
  std::vector<int> leavers;           // members whose device is no longer in the target
  std::vector<std::string> missing;   // devices without a member
  std::vector<std::string> to_start;  // missing devices for which there is no newcomer
  std::vector<int> surplus;           // newcomers whose device is no longer in the target
};

// Everything that a Membership knows about its replicas. Store it so that another Membership can continue from it.
// Times are on the caller's clock.
struct MembershipState {
  using Time = BackOff::Time;
  enum class Role { kLoading, kWaiting, kMember, kLeaving };
  struct Replica {
    int number = 0;
    std::string device;
    Role role = Role::kLoading;
    Time started{};                // when a newcomer was started
    int trains = -1;               // newest generation in which it reported that it was training; -1 if none
    bool trained = false;          // it has trained in a generation; assumed for the first members
    bool broken = false;           // it reported that the current generation's group broke
    bool killed = false;           // a kKill action for it was returned
    bool late = false;             // it was killed because it was not ready in time
    std::optional<Time> leave_by;  // a leaver's deadline, set once the others are training without it

    bool operator==(const Replica&) const = default;
  };

  int generation = 0;
  int next = 0;                   // number of the next replica to be started
  std::vector<Replica> replicas;  // the members in order of rank, then all others
  std::optional<Time> broken_since;
  std::optional<Time> finished_at;  // when a member finished or, during a stop, the last member that had trained ended
  bool regroup = false;             // the current generation is lost
  bool incomplete = false;          // a member of the current generation has ended
  bool can_join = true;
  Time start_after{};  // after a failure, no newcomer is started before this time
  int newcomer_failures = 0;
  std::string noticed;

  bool operator==(const MembershipState&) const = default;

  // Return the replica with this number, or null if there is none.
  Replica* find(int number);
  const Replica* find(int number) const;
  bool is_member(int number) const;
  // Returns whether the replica was started as a newcomer and is not yet a member of a generation.
  bool is_newcomer(int number) const;
  // A killed replica is counted as a member until it has ended, but not in any other role.
  std::size_t count(Role role) const;
  // Both lists are ordered by rank.
  std::vector<int> members() const;
  std::vector<std::string> devices() const;
  // Returns whether all members are training in the current generation.
  bool settled() const;
  // Members that were listed but have not begun to train have no state to continue from.
  bool a_member_has_trained() const;
  // Returns whether a member was killed and has not ended yet.
  bool a_member_dies() const;
  MembershipDifference difference_from(const MembershipTarget& target) const;
};

// Removes one occurrence of the device from the list. Returns false if there is none.
bool take_device(std::vector<std::string>& devices, const std::string& device);

}  // namespace adaptdl::sched
