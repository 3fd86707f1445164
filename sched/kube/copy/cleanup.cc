#include "kube/copy/cleanup.h"

#include <mutex>
#include <utility>

namespace adaptdl::kube {
namespace {

struct Registry {
  std::mutex mutex;
  std::list<std::function<void()>> actions;
};

Registry& registry() {
  static Registry& all = *new Registry;  // never destroyed, because static objects may have cleanups
  return all;
}

}  // namespace

Cleanup::Cleanup(std::function<void()> action) {
  const std::lock_guard lock(registry().mutex);
  entry_ = registry().actions.insert(registry().actions.end(), std::move(action));
}

Cleanup::~Cleanup() {
  if (!held_) return;
  // The mutex stays locked during the action, so that run_all() waits until the action has finished.
  const std::lock_guard lock(registry().mutex);
  if (*entry_) (*entry_)();
  registry().actions.erase(entry_);
}

void Cleanup::release() {
  if (!std::exchange(held_, false)) return;
  const std::lock_guard lock(registry().mutex);
  registry().actions.erase(entry_);
}

void Cleanup::run_all() {
  std::unique_lock lock(registry().mutex);
  for (auto entry = registry().actions.rbegin(); entry != registry().actions.rend(); ++entry) {
    if (*entry) (*entry)();
  }
  // Keep the mutex locked, so that no other thread runs an action again.
  static_cast<void>(lock.release());
}

}  // namespace adaptdl::kube
