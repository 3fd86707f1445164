// The jobs of a cluster as they change: watches of its jobs, pods and warnings, put together.
//
// Threading: its own threads watch; its members may be called from any thread. Lifetime: the client must outlive it; it
// ends within a moment when it goes.
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
  // Watches a namespace, or all of them if it is empty; of the jobs, those that the selector takes.
  ClusterWatch(kube::Client& client, const std::string& name_space, const std::string& selector);

  // Whether all that was there at the start is known. Rethrows what ended a watch.
  bool ready() const;
  // Counts changes, so that a look without one can be spared.
  std::size_t version() const;
  // Why the cluster is out of reach at present; empty if it is not. Rows stay as they were known last.
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
  std::vector<std::jthread> threads_;  // last: they use all else
};

}  // namespace adaptdl::cli
