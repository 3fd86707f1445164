#include "membership/membership_state.h"

#include <algorithm>
#include <utility>

namespace adaptdl::sched {

bool take_device(std::vector<std::string>& devices, const std::string& device) {
  const auto found = std::ranges::find(devices, device);
  if (found == devices.end()) return false;
  devices.erase(found);
  return true;
}

MembershipState::Replica* MembershipState::find(int number) {
  const auto found = std::ranges::find(replicas, number, &Replica::number);
  return found == replicas.end() ? nullptr : &*found;
}

const MembershipState::Replica* MembershipState::find(int number) const {
  return const_cast<MembershipState*>(this)->find(number);
}

std::size_t MembershipState::count(Role role) const {
  return static_cast<std::size_t>(std::ranges::count_if(replicas, [role](const Replica& replica) {
    return replica.role == role && (role == Role::kMember || !replica.killed);
  }));
}

std::vector<int> MembershipState::members() const {
  std::vector<int> result;
  for (const Replica& replica : replicas) {
    if (replica.role == Role::kMember) result.push_back(replica.number);
  }
  return result;
}

std::vector<std::string> MembershipState::devices() const {
  std::vector<std::string> result;
  for (const Replica& replica : replicas) {
    if (replica.role == Role::kMember) result.push_back(replica.device);
  }
  return result;
}

bool MembershipState::is_member(int number) const {
  const Replica* found = find(number);
  return found != nullptr && found->role == Role::kMember;
}

bool MembershipState::is_newcomer(int number) const {
  const Replica* found = find(number);
  return found != nullptr && (found->role == Role::kLoading || found->role == Role::kWaiting);
}

bool MembershipState::settled() const {
  return std::ranges::all_of(replicas, [this](const Replica& replica) {
    return replica.role != Role::kMember || replica.trains == generation;
  });
}

bool MembershipState::a_member_has_trained() const {
  return std::ranges::any_of(replicas,
                             [](const Replica& replica) { return replica.role == Role::kMember && replica.trained; });
}

bool MembershipState::a_member_dies() const {
  return std::ranges::any_of(replicas,
                             [](const Replica& replica) { return replica.role == Role::kMember && replica.killed; });
}

MembershipDifference MembershipState::difference_from(const MembershipTarget& target) const {
  MembershipDifference result;
  std::vector<std::string> open = target.devices;
  for (const Replica& replica : replicas) {
    if (replica.role == Role::kMember && !take_device(open, replica.device)) result.leavers.push_back(replica.number);
  }
  result.missing = open;
  for (const Replica& replica : replicas) {
    const bool newcomer = replica.role == Role::kLoading || replica.role == Role::kWaiting;
    // A killed newcomer may still be on its device.
    if (newcomer && !take_device(open, replica.device) && !replica.killed) result.surplus.push_back(replica.number);
  }
  result.to_start = std::move(open);
  return result;
}

}  // namespace adaptdl::sched
