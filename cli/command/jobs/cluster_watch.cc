#include "command/jobs/cluster_watch.h"

#include "kube/api/resource.h"
#include "kube/jobs/job.h"

namespace adaptdl::cli {

using kube::Change;

ClusterWatch::ClusterWatch(kube::Client& client, const std::string& name_space, const std::string& selector) {
  const auto start = [&](Kind kind, const kube::Resource& resource, kube::ListOptions options) {
    threads_.emplace_back([this, &client, kind, collection = kube::path(resource, name_space),
                           options = std::move(options)](std::stop_token stop) {
      follow(client, kind, collection, options, std::move(stop));
    });
  };
  start(kJobs, kube::kAdaptDLJobs, {.label_selector = selector, .field_selector = {}});
  start(kPods, kube::kPods, {.label_selector = kube::kReplicaSelector, .field_selector = {}});
  start(kEvents, kube::kEvents, {.label_selector = {}, .field_selector = "type=Warning"});
}

void ClusterWatch::follow(kube::Client& client, Kind kind, const std::string& collection,
                          const kube::ListOptions& options, std::stop_token stop) {
  try {
    kube::watch(client, collection, options, std::move(stop), [this, kind](Change&& change) {
      take(kind, change);
      return true;
    });
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failed_) failed_ = std::current_exception();
  }
}

void ClusterWatch::take(Kind kind, const Change& change) {
  const std::lock_guard lock(mutex_);
  ++version_;
  if (change.kind == Change::Kind::kInterrupted) {
    outage_[kind] = change.message;
    return;
  }
  outage_[kind].clear();
  if (change.kind == Change::Kind::kSynced) {
    synced_[kind] = true;
    return;
  }
  const bool gone = change.kind == Change::Kind::kDeleted;
  if (kind == kJobs) {
    gone ? index_.drop_job(change.object) : index_.put_job(change.object);
  } else if (kind == kPods) {
    gone ? index_.drop_pod(change.object) : index_.put_pod(change.object);
  } else {
    gone ? index_.drop_event(change.object) : index_.put_event(change.object);
  }
}

bool ClusterWatch::ready() const {
  const std::lock_guard lock(mutex_);
  if (failed_) std::rethrow_exception(failed_);
  return synced_[kJobs] && synced_[kPods];
}

std::size_t ClusterWatch::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

std::string ClusterWatch::outage() const {
  const std::lock_guard lock(mutex_);
  for (const std::string& why : outage_) {
    if (!why.empty()) return why;
  }
  return "";
}

std::vector<kube::JobView> ClusterWatch::views(kube::Time now) const {
  const std::lock_guard lock(mutex_);
  return index_.views(now);
}

}  // namespace adaptdl::cli
