// RunSize determines how many replicas a run may have on this machine, and on which devices.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "local/launch_plan.h"
#include "membership/membership.h"

namespace adaptdl::sched {

class RunSize {
 public:
  explicit RunSize(const LaunchPlan& plan);

  // Applies the bounds that a user asks for, 1 <= min <= max. Returns the reason, and changes nothing, if it cannot.
  std::optional<std::string> resize(int min, int max);
  // Restricts the run to these devices, at least one, until the next allocation.
  void allocate(std::vector<std::string> devices);

  // Sets the number of replicas that the run should have and not exceed, within its bounds; none: any number.
  void prefer(std::optional<int> replicas) noexcept { preferred_ = replicas; }
  // Reports that its program was measured or can follow changes of its replicas, and may exceed start_replicas.
  void may_grow() noexcept { start_.reset(); }

  int min() const noexcept { return min_; }
  int max() const noexcept { return max_; }
  // Returns the maximum that it asks for at present, within these bounds.
  int max_wanted() const noexcept;
  // Returns the number that it prefers at present, within the same bounds; none: any number.
  std::optional<int> preferred() const noexcept;
  // Returns whether the run is not elastic and no user has resized it.
  bool fixed() const noexcept { return fixed_; }
  // Returns what it should have now: as many replicas as it may, up to max_wanted().
  MembershipTarget target() const;

 private:
  std::vector<std::string> devices_;  // available to it; empty: replicas need none
  bool share_devices_;
  int min_, max_;
  bool fixed_;
  bool by_user_ = false;
  bool answered_ = true;  // an allocation has met the last request of the user
  std::optional<int> start_, preferred_;
  std::optional<std::vector<std::string>> allocated_;
};

}  // namespace adaptdl::sched
