// A queue of keys for workers. A key is processed by one worker at a time.
//
// A key that is added again while it is waiting is processed once; a key that is added while a worker is processing it
// is processed again. Keys of low priority are taken only if no other key is waiting.
//
// Threading: all methods may be called from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>

namespace adaptdl::sched {

class WorkQueue {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Priority { kNormal, kLow };

  // Adds the key. If it is already waiting, the higher priority applies.
  void add(const std::string& key, Priority priority = Priority::kNormal) {
    const std::lock_guard lock(mutex_);
    if (add_waiting(key, priority)) wake_.notify_one();
  }

  // Adds the key at the time `when`. If the key is already scheduled, the earlier time applies.
  void add_at(const std::string& key, Clock::time_point when) {
    const std::lock_guard lock(mutex_);
    const auto [entry, added] = later_.try_emplace(key, when);
    if (!added) {
      if (entry->second <= when) return;
      in_order_.erase({entry->second, key});
      entry->second = when;
    }
    in_order_.emplace(when, key);
    // Wakes all workers, because the worker that is waiting for this time may be busy with another key by then.
    if (in_order_.begin()->second == key) wake_.notify_all();
  }

  // Waits for a key, which the caller owns until done(). Returns nothing once a stop is requested.
  std::optional<std::string> take(std::stop_token stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      const Clock::time_point next = collect_due(Clock::now());
      if (std::deque<std::string>& keys = ready_.empty() ? ready_low_ : ready_; !keys.empty()) {
        std::string key = std::move(keys.front());
        keys.pop_front();
        waiting_.erase(key);
        taken_.insert(key);
        return key;
      }
      wake_.wait_until(lock, stop, next, [&] {
        const Clock::time_point earlier = collect_due(Clock::now());
        return !ready_.empty() || !ready_low_.empty() || earlier < next;
      });
    }
    return {};
  }

  void done(const std::string& key) {
    const std::lock_guard lock(mutex_);
    taken_.erase(key);
    const auto found = waiting_.find(key);
    if (found == waiting_.end()) return;
    ready(found->second).push_back(key);
    wake_.notify_one();
  }

 private:
  std::deque<std::string>& ready(Priority priority) { return priority == Priority::kLow ? ready_low_ : ready_; }

  // Returns false if the key is already waiting with this priority or a higher one.
  bool add_waiting(const std::string& key, Priority priority) {
    const auto [entry, added] = waiting_.try_emplace(key, priority);
    if (!added && entry->second <= priority) return false;
    entry->second = priority;
    if (taken_.contains(key)) return true;
    if (!added) std::erase(ready_low_, key);
    ready(priority).push_back(key);
    return true;
  }

  // Adds the keys that are due, and returns when the next key is due.
  Clock::time_point collect_due(Clock::time_point now) {
    while (!in_order_.empty() && in_order_.begin()->first <= now) {
      const std::string& key = in_order_.begin()->second;
      add_waiting(key, Priority::kNormal);
      later_.erase(key);
      in_order_.erase(in_order_.begin());
    }
    return in_order_.empty() ? now + std::chrono::hours(1) : in_order_.begin()->first;
  }

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::string> ready_, ready_low_;
  std::map<std::string, Priority> waiting_;  // keys that must be processed, even if a worker is processing them
  std::set<std::string> taken_;
  std::map<std::string, Clock::time_point> later_;                // by key
  std::set<std::pair<Clock::time_point, std::string>> in_order_;  // the same entries, by time
};

}  // namespace adaptdl::sched
