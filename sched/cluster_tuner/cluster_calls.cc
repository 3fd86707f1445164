#include "cluster_tuner/cluster_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>

#include "http/http.h"
#include "kube/error.h"
#include "kube/watch.h"

namespace adaptdl::sched::tune {
namespace {

constexpr std::chrono::milliseconds kMaxPause{4000};

}  // namespace

void ClusterCalls::unreachable(const std::string& why) {
  const std::scoped_lock lock(mutex_);
  if (unreachable_) return;
  unreachable_ = true;
  notice_(fmt::format("the cluster does not answer; its jobs continue, and it is tried again: {}", why));
}

void ClusterCalls::answered() {
  const std::scoped_lock lock(mutex_);
  if (unreachable_) notice_("the cluster answers again");
  unreachable_ = false;
}

bool ClusterCalls::may_pass(Attempt& attempt, const std::exception& error) {
  // A try that took long, such as following a log, was accepted before it failed.
  const auto now = std::chrono::steady_clock::now();
  if (now - attempt.began > kube::kStarting) attempt = {.began = attempt.began};
  if (const auto* const refusal = dynamic_cast<const kube::ApiError*>(&error)) {
    const int code = refusal->code();
    if (code == 401 || code == 403) {
      if (!attempt.refused) attempt.refused = now;
      return now - *attempt.refused < kube::kStarting;
    }
    attempt.refused.reset();
    if (code < 500 && code != 429) return false;
  } else if (dynamic_cast<const http::ConnectionError*>(&error) == nullptr) {
    return false;
  }
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
