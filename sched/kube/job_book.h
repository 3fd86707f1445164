// The jobs of a cluster as they are looked at: each with its pods and why it is as it is, put together from objects
// that come one by one, from lists or from watches.
//
// Threading: a JobBook is used by one thread at a time.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kube/job.h"

namespace adaptdl::kube {

struct JobView {
  Job job;
  std::vector<Replica> replicas;  // the pods of the newest group, by rank
  std::string why;
  int ready = 0, wanted = 0;  // replicas
};

class JobBook {
 public:
  void put_job(const nlohmann::json& object);
  void drop_job(const nlohmann::json& object);
  void put_pod(const nlohmann::json& object);
  void drop_pod(const nlohmann::json& object);
  void put_event(const nlohmann::json& object);
  void drop_event(const nlohmann::json& object);

  // All jobs, by the time at which they were made, then by name.
  std::vector<JobView> views(Time now) const;
  // Whether events could say more of any job.
  bool wants_events() const;

 private:
  using Pods = std::map<std::string, Replica>;  // by name
  const Pods& pods_of(const Job& job) const;

  std::map<std::string, Job> jobs_;                             // by namespace/name
  std::map<std::string, Pods> pods_;                            // by namespace/name of the job
  std::map<std::string, std::map<std::string, Event>> events_;  // by namespace/name of the object; by their own names
};

}  // namespace adaptdl::kube
