// Stores what replicas report to the supervisor about generations.
//
// The reports are kept in memory only: replicas repeat them to a new operator within their poll timeout of 30 s.
//
// Threading: all methods may be called from any thread.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "operator/jobs/lifecycle.h"

namespace adaptdl::sched {

class ReplicaReportStore {
 public:
  // Records that a replica requests a generation later than `after`. Returns whether the report is new.
  bool waits(const std::string& job, const std::string& replica_id, int after, bool broken);
  // Records that a member of generation `after`, whose members are all training, requests the next one. Returns whether
  // the report is new.
  bool follows(const std::string& job, int after);

  // Returns the reports of the replicas of this group, and forgets the reports of earlier groups.
  ReplicaReports of(const std::string& job, int group);
  void forget(const std::string& job);

 private:
  struct Job {
    int group = -1;  // -1: not known yet
    ReplicaReports reports;
  };

  std::mutex mutex_;
  std::map<std::string, Job> jobs_;  // by namespace/name of the job
};

}  // namespace adaptdl::sched
