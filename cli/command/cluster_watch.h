// ClusterWatch follows the jobs of a cluster: it combines watches of its jobs, pods and warnings.
//
// Threading: its own threads watch; its members may be called from any thread. Lifetime: the client must outlive it;
// the destructor waits a moment for the threads.
#pragma once

#include <array>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kube/client.h"
#include "kube/job_book.h"
#include "kube/watch.h"

namespace adaptdl::cli {

class ClusterWatch {
 public:
  // Watches one namespace, or all if it is empty, and of the jobs only those that match the label selector.
  ClusterWatch(kube::Client& client, const std::string& name_space, const std::string& selector);

  // Returns whether the jobs and pods that existed at the start are known. Rethrows the exception that ended a watch.
  bool ready() const;
  // Counts changes, so that callers can skip work when nothing has changed.
  std::size_t version() const;
  // Returns why the cluster is unreachable, or "" if it is reachable. Meanwhile, views() returns the last known state.
  std::string outage() const;
  std::vector<kube::JobView> views(kube::Time now) const;

 private:
  enum Kind { kJobs, kPods, kEvents, kKinds };
  void follow(kube::Client& client, Kind kind, const std::string& collection, const kube::ListOptions& options,
              std::stop_token stop);
  void take(Kind kind, const kube::Change& change);

  mutable std::mutex mutex_;
  kube::JobBook book_;
  std::size_t version_ = 0;
  std::array<bool, kKinds> synced_{};
  std::array<std::string, kKinds> outage_;
  std::exception_ptr failed_;
  std::vector<std::jthread> threads_;  // last: they use all other members
};

}  // namespace adaptdl::cli
