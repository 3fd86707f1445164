// Collects a cluster's jobs, with their pods and the reasons for their states, from objects that lists or watches
// deliver one by one.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kube/jobs/job.h"

namespace adaptdl::kube {

struct JobView {
  Job job;
  std::vector<Replica> replicas;  // pods of the newest group, by rank
  std::string why;
  int ready = 0, wanted = 0;  // numbers of replicas
};

class JobIndex {
 public:
  void put_job(const nlohmann::json& object);
  void drop_job(const nlohmann::json& object);
  void put_pod(const nlohmann::json& object);
  void drop_pod(const nlohmann::json& object);
  void put_event(const nlohmann::json& object);
  void drop_event(const nlohmann::json& object);

  // Returns all jobs, ordered by creation time, then by namespace and name.
  std::vector<JobView> views(Time now) const;
  // Returns whether events could explain any job's state further.
  bool wants_events() const;

 private:
  using Pods = std::map<std::string, Replica>;  // by name
  const Pods& pods_of(const Job& job) const;

  std::map<std::string, Job> jobs_;                             // by namespace/name
  std::map<std::string, Pods> pods_;                            // pods of each job, by namespace/name of the job
  std::map<std::string, std::map<std::string, Event>> events_;  // by namespace/name of the subject, then by event name
};

}  // namespace adaptdl::kube
