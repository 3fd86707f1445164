// Sends a trial's run its share of the devices: as soon as the run can be reached, and again until the run has
// acknowledged the share. A run begins with the default, RunShare{}.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "local/devices/run_share.h"
#include "local/record/run_client.h"
#include "local/record/run_record.h"

namespace adaptdl::sched::tune {

class ShareSender {
 public:
  void set(const RunShare& share) { wanted_ = share; }
  // Sends the share if the run does not have it yet. `find` returns the run's record, if it exists. Does not block.
  void tick(const std::function<std::optional<RunEntry>()>& find);

 private:
  RunShare wanted_, sent_, acknowledged_;
  std::unique_ptr<PendingRequest> pending_;
};

}  // namespace adaptdl::sched::tune
