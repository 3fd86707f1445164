#include "operator/jobs/replica_reports.h"

#include "operator/jobs/replica_pod.h"

namespace adaptdl::sched {
namespace {

// Maximum number of replicas per group whose reports are stored. A client with a job's token can send reports for any
// number of replicas.
constexpr std::size_t kMaxReplicas = 100'000;

}  // namespace

bool ReplicaReportStore::waits(const std::string& job, const std::string& replica_id, int after, bool broken) {
  const auto id = parse_replica_id(replica_id);
  if (!id) return false;
  const std::lock_guard lock(mutex_);
  Job& entry = jobs_[job];
  if (id->group < entry.group) return false;
  if (id->group > entry.group)
    entry = {.group = id->group, .reports = entry.group < 0 ? entry.reports : ReplicaReports()};
  if (entry.reports.waits.size() >= kMaxReplicas) return false;
  const ReplicaReports::Wait wait{after, broken};
  const auto [known, added] = entry.reports.waits.try_emplace(id->number, wait);
  if (!added && known->second == wait) return false;
  known->second = wait;
  return true;
}

bool ReplicaReportStore::follows(const std::string& job, int after) {
  const std::lock_guard lock(mutex_);
  int& trains = jobs_[job].reports.trains;
  if (trains >= after) return false;
  trains = after;
  return true;
}

ReplicaReports ReplicaReportStore::of(const std::string& job, int group) {
  const std::lock_guard lock(mutex_);
  Job& entry = jobs_[job];
  if (entry.group != group) entry = {.group = group, .reports = entry.group < 0 ? entry.reports : ReplicaReports()};
  return entry.reports;
}

void ReplicaReportStore::forget(const std::string& job) {
  const std::lock_guard lock(mutex_);
  jobs_.erase(job);
}

}  // namespace adaptdl::sched
