// ClusterWatch follows the jobs in a cluster by watching jobs, pods and warning events.
//
// Threading: each watch runs on a thread of its own; members may be called from any thread. Lifetime: the client must
// outlive the object, whose destructor waits briefly for the threads.
#pragma once

#include <array>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kube/api/client.h"
#include "kube/api/watch.h"
#include "kube/jobs/job_index.h"

namespace adaptdl::cli {

class ClusterWatch {
 public:
  // Watches the jobs that match the label selector in one namespace, or in all namespaces if `name_space` is empty.
  ClusterWatch(kube::Client& client, const std::string& name_space, const std::string& selector);

  // Returns whether the jobs and pods that existed at the start are known. Rethrows the exception that ended a watch.
  bool ready() const;
  // Returns a number that grows with every change, so that callers can skip work when nothing has changed.
  std::size_t version() const;
  // Returns why the cluster is unreachable, or "" if it is reachable. During an outage, views() returns the last known
  // state.
  std::string outage() const;
  std::vector<kube::JobView> views(kube::Time now) const;

 private:
  enum Kind { kJobs, kPods, kEvents, kKinds };
  void follow(kube::Client& client, Kind kind, const std::string& collection, const kube::ListOptions& options,
              std::stop_token stop);
  void take(Kind kind, const kube::Change& change);

  mutable std::mutex mutex_;
  kube::JobIndex index_;
  std::size_t version_ = 0;
  std::array<bool, kKinds> synced_{};
  std::array<std::string, kKinds> outage_;
  std::exception_ptr failed_;
  std::vector<std::jthread> threads_;  // last, because the threads use all other members
};

}  // namespace adaptdl::cli
