// How many replicas a run may have on this machine, and on which devices.
//
// Threading: the launcher's thread.
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

  // A user asks for other bounds, 1 <= min <= max. Returns why that cannot be, if it cannot; nothing is changed then.
  std::optional<std::string> resize(int min, int max);
  // It may have these devices, one at least and no others, until it is given others.
  void allocate(std::vector<std::string> devices);

  // Within its bounds, it should have as many replicas as that and no more; none: any number.
  void prefer(std::optional<int> replicas) noexcept { preferred_ = replicas; }
  // Its program can follow changes of its replicas, or was measured: it may have more than LaunchPlan::start_replicas.
  void may_grow() noexcept { start_.reset(); }

  int min() const noexcept { return min_; }
  int max() const noexcept { return max_; }
  // The maximum that it asks for at present, within these bounds.
  int max_wanted() const noexcept;
  // The number that it prefers at present, within the same bounds; none: any number.
  std::optional<int> preferred() const noexcept;
  // Whether nobody let it have another number of replicas than the one.
  bool fixed() const noexcept { return fixed_; }
  // What it should have now: as much as it may, up to max_wanted().
  MembershipTarget target() const;

 private:
  std::vector<std::string> devices_;  // that there are for it; empty: replicas need none
  bool share_devices_;
  int min_, max_;
  bool fixed_;
  bool by_user_ = false;
  bool answered_ = true;  // what the user asked for last was
  std::optional<int> start_, preferred_;
  std::optional<std::vector<std::string>> allocated_;
};

}  // namespace adaptdl::sched
