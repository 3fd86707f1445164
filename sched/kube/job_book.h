// The jobs of a cluster as they are looked at: each with its pods and why it is as it is, put together from objects
// that come one by one, from lists or from watches.
//
// Threading: a JobBook is used by one thread at a time; list_jobs may be called from any.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kube/client.h"
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
  // The conditions and the rest of a job's hints are looked at only there.
  const std::map<std::string, Job>& jobs() const { return jobs_; }

 private:
  using Pods = std::map<std::string, Replica>;  // by name
  const Pods& pods_of(const Job& job) const;

  std::map<std::string, Job> jobs_;                             // by namespace/name
  std::map<std::string, Pods> pods_;                            // by namespace/name of the job
  std::map<std::string, std::map<std::string, Event>> events_;  // by namespace/name of the object; by their own names
};

struct JobQuery {
  std::string name_space;          // empty: all
  std::string selector;            // of labels
  std::vector<std::string> names;  // only these, of that namespace; none: all
};

// Jobs, pods and (where they could tell more) events, listed at the same time. A name of which there is no job is
// passed over. Throws as Client does.
//
// Jobs are read as they are, so that what was created a moment ago is there. Pods and events come from what the API
// server has in memory, which may be a moment old: they tell only why a job is as it is, and are most of the work.
std::vector<JobView> list_jobs(Client& client, const JobQuery& query, Time now);

}  // namespace adaptdl::kube
