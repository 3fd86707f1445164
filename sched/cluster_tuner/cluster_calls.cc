#include "cluster_tuner/cluster_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>

#include "http/http.h"
#include "kube/api/error.h"
#include "kube/api/watch.h"

namespace adaptdl::sched::tune {
namespace {

constexpr std::chrono::milliseconds kMaxPause{4000};

}  // namespace

void ClusterCalls::unreachable(const std::string& why) {
  const std::scoped_lock lock(mutex_);
  if (unreachable_) return;
  unreachable_ = true;
  notice_(fmt::format("request to the cluster failed: {}; retrying while the jobs continue", why));
}

void ClusterCalls::answered() {
  const std::scoped_lock lock(mutex_);
  if (unreachable_) notice_("the cluster responds again");
  unreachable_ = false;
}

bool ClusterCalls::may_pass(Attempt& attempt, const std::exception& error) {
  // An attempt that took a long time, such as following a log, was accepted by the server before it failed, so earlier
  // refusals no longer count.
  const auto now = std::chrono::steady_clock::now();
  if (now - attempt.began > kube::kStarting) attempt = {.began = attempt.began};
  if (const auto* const answer = dynamic_cast<const kube::ApiError*>(&error)) {
    const int code = answer->code();
    if (code == 401 || code == 403 || (code == 404 && !answer->missing_object())) {
      if (!attempt.refused) attempt.refused = now;
      return now - *attempt.refused < kube::kStarting;
    }
    if (code == 409) return true;  // a conflict with another change
    if (code < 500 && code != 429) return false;
  } else if (dynamic_cast<const Error*>(&error) == nullptr || dynamic_cast<const http::Stopped*>(&error) != nullptr) {
    return false;
  }
  attempt.refused.reset();
  unreachable(error.what());
  return true;
}

void ClusterCalls::pause(Attempt& attempt, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, stop, attempt.pause, [] { return false; });
  if (stop.stop_requested()) throw http::Stopped();
  attempt.pause = std::min(attempt.pause * 2, kMaxPause);
}

}  // namespace adaptdl::sched::tune
