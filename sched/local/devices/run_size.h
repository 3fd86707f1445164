// RunSize determines how many replicas a run may have, and on which devices.
//
// Threading: only the launcher's thread uses it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "local/base/launch_plan.h"
#include "membership/membership.h"

namespace adaptdl::sched {

class RunSize {
 public:
  explicit RunSize(const LaunchPlan& plan);

  // Applies the bounds that a user requested, with 1 <= min <= max. If that is impossible, changes nothing and returns
  // the reason.
  std::optional<std::string> resize(int min, int max);
  // Restricts the run to these devices until the next allocation. There must be at least one device.
  void allocate(std::vector<std::string> devices);

  // Sets the number of replicas that the run should have and must not exceed, within its bounds. nullopt: no
  // preference.
  void prefer(std::optional<int> replicas) noexcept { preferred_ = replicas; }
  // Lifts the limit of LaunchPlan::start_replicas, once the program has been measured or is known to adapt to changes
  // in the number of replicas.
  void may_grow() noexcept { start_.reset(); }

  int min() const noexcept { return min_; }
  int max() const noexcept { return max_; }
  // Returns the maximum number of replicas that the run currently requests, within these bounds.
  int max_wanted() const noexcept;
  // Returns the number of replicas that the run currently prefers, within the same bounds, or nullopt if it has no
  // preference.
  std::optional<int> preferred() const noexcept;
  // Returns whether the run is not elastic and no user has resized it.
  bool fixed() const noexcept { return fixed_; }
  // Returns the current target: as many replicas as the run may have, up to max_wanted().
  MembershipTarget target() const;

 private:
  std::vector<std::string> devices_;  // devices available to the run; empty: replicas need none
  bool share_devices_;
  int min_, max_;
  bool fixed_;
  bool by_user_ = false;
  bool answered_ = true;  // an allocation has satisfied the user's last request
  std::optional<int> start_, preferred_;
  std::optional<std::vector<std::string>> allocated_;
};

}  // namespace adaptdl::sched
