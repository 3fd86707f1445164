#include "local/save_requests.h"

#include <signal.h>

namespace adaptdl::sched {
namespace {

// Directories are looked into no more often than this.
constexpr auto kLookEvery = std::chrono::milliseconds(100);

}  // namespace

void SaveRequests::add(RunRequest request) {
  if (!plan_.checkpoints) return request.refuse("it was started with --no-checkpoint");
  if (requests_.empty()) {
    watch_.mark();
    since_ = std::chrono::steady_clock::now();
    looked_ = {};
    asked_ = false;
  }
  requests_.push_back(std::move(request));
}

void SaveRequests::tick(const std::vector<std::unique_ptr<LocalReplica>>& replicas) {
  const auto now = std::chrono::steady_clock::now();
  if (requests_.empty() || now - looked_ < kLookEvery) return;
  looked_ = now;
  if (!asked_) {
    for (const auto& replica : replicas) asked_ = replica->ask_to_save() || asked_;
    if (!asked_ && now - since_ > kStartUp)
      return refuse_all("its program saves no checkpoint on request: it handles no SIGUSR1");
    return;
  }
  const auto checkpoint = watch_.newest_since_mark();
  if (!checkpoint) return;
  for (RunRequest& request : requests_) request.accept({{"path", checkpoint->path.string()}});
  requests_.clear();
}

void SaveRequests::refuse_all(const std::string& why) {
  for (RunRequest& request : requests_) request.refuse(why);
  requests_.clear();
}

}  // namespace adaptdl::sched
