#include "generation/watch.h"

#include <pthread.h>

#include <chrono>
#include <thread>

#include "adaptdl/error.h"
#include "base/signals_blocked.h"
#include "generation/client.h"

namespace adaptdl::generation {
namespace {

constexpr std::chrono::seconds kErrorPause{1};
constexpr std::chrono::seconds kTimeout{30}, kFormingTimeout{1};

}  // namespace

Watch& Watch::instance() {
  static auto* const only = new Watch;
  return *only;
}

std::optional<Generation> Watch::newest(int after, bool trains) {
  const std::lock_guard lock(mutex_);
  if (after_ != after || trains_ != trains) {
    after_ = after;
    trains_ = trains;
    changed_.notify_all();
  }
  if (!started_) {
    // The program's signals must be delivered to its own threads.
    const SignalsBlocked blocked;
    std::thread([this] { run(); }).detach();
    started_ = true;
  }
  return newest_ && newest_->number > after ? newest_ : std::nullopt;
}

void Watch::rest() {
  const std::lock_guard lock(mutex_);
  after_.reset();
}

void Watch::run() {
  ::pthread_setname_np(::pthread_self(), "adaptdl-watch");
  std::unique_lock lock(mutex_);
  for (;;) {
    // A generation that is already known need not be requested again.
    changed_.wait(lock, [this] { return after_ && !(newest_ && newest_->number > *after_); });
    // A generation that is forming will be training soon; with a short timeout, the next request can report that.
    const Question question{.after = *after_, .trains = trains_, .timeout = trains_ ? kTimeout : kFormingTimeout};
    lock.unlock();
    std::optional<Generation> next;
    bool failed = false;
    try {
      next = ask(question);
    } catch (const Error&) {
      failed = true;
    }
    if (failed) std::this_thread::sleep_for(kErrorPause);
    lock.lock();
    if (next && !(newest_ && newest_->number >= next->number)) newest_ = std::move(next);
  }
}

}  // namespace adaptdl::generation
