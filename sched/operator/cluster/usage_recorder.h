// Stores the usage of jobs by month in ConfigMaps in the operator's namespace (kube/jobs/usage_ledger.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kube/api/client.h"
#include "kube/jobs/usage_ledger.h"

namespace adaptdl::sched {

class UsageRecorder {
 public:
  // The ConfigMaps are named `name`-YYYY-MM. `access` is copied.
  UsageRecorder(kube::Access access, std::string name_space, std::string name);

  // Records the usage of all jobs in the cluster, and of jobs that were deleted since the last call. Writes nothing if
  // the usage is already stored. Logs a warning if the usage cannot be stored; the next call then stores it.
  void record(const std::vector<kube::UsageRecord>& existing, std::vector<kube::UsageRecord> deleted, kube::Time now);

 private:
  std::string name_of(kube::Month month) const { return name_ + '-' + month.to_string(); }
  void load(kube::Month month, const std::vector<kube::UsageRecord>& existing);
  std::optional<kube::UsageLedger> latest_before(kube::Month month);
  void store();

  const std::string name_space_, name_;
  kube::Client client_;
  nlohmann::json stored_;                    // the ConfigMap; null if not known
  std::optional<kube::UsageLedger> ledger_;  // the ledger in stored_
  std::vector<kube::UsageRecord> deleted_;   // deleted jobs whose usage may not have been stored
  std::string last_error_;
};

}  // namespace adaptdl::sched
