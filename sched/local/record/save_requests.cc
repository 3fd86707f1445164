#include "local/record/save_requests.h"

#include <algorithm>

namespace adaptdl::sched {
namespace {

// The checkpoint directory is read no more often than this.
constexpr auto kLookIntoDirectoriesEvery = std::chrono::milliseconds(100);

}  // namespace

void SaveRequests::add(RunRequest request) {
  if (!plan_.checkpoints) return request.refuse("it was started with --no-checkpoint");
  if (requests_.empty()) {
    watch_.mark();
    since_ = std::chrono::steady_clock::now();
    looked_ = {};
    asked_.reset();
  }
  requests_.push_back(std::move(request));
}

void SaveRequests::tick(const std::vector<std::unique_ptr<Replica>>& replicas) {
  const auto now = std::chrono::steady_clock::now();
  if (requests_.empty() || now - looked_ < kLookIntoDirectoriesEvery) return;
  looked_ = now;
  if (const auto checkpoint = asked_ ? watch_.newest_since_mark() : std::nullopt) {
    for (RunRequest& request : requests_) request.accept({{"path", checkpoint->path.string()}});
    requests_.clear();
    return;
  }
  const auto lives = [&](const auto& replica) { return replica->number() == asked_ && !replica->ended(); };
  if (asked_ && std::any_of(replicas.begin(), replicas.end(), lives)) return;
  const auto takes_it = [](const auto& replica) { return replica->ask_to_save(); };
  const auto asked = std::find_if(replicas.begin(), replicas.end(), takes_it);
  if (asked != replicas.end()) {
    asked_ = (*asked)->number();
  } else if (!asked_ && now - since_ > kStartUp) {
    refuse_all("its program does not save checkpoints on request: it does not handle SIGUSR1");
  }
}

void SaveRequests::failed(int replica, const std::string& why) {
  if (asked_ == replica) refuse_all("saving the checkpoint failed: " + why);
}

void SaveRequests::refuse_all(const std::string& why) {
  for (RunRequest& request : requests_) request.refuse(why);
  requests_.clear();
}

}  // namespace adaptdl::sched
