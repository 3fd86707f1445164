// Limits how often the hints of jobs are written to the API server.
//
// Each job reports new hints every 30 s. The hints are written into the jobs' statuses for the next operator and
// for users, who do not need every update immediately.
//
// Threading: all methods may be called from any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <string>

namespace adaptdl::sched {

class HintPace {
 public:
  using Clock = std::chrono::steady_clock;

  // `pause` is the average time between two writes.
  explicit HintPace(Clock::duration pause) : pause_(pause) {}

  // Returns the time from which the job's hints may be written. This time does not change until written() is called,
  // unless the job misses its turn.
  Clock::time_point due(const std::string& job, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    const auto [entry, added] = due_.try_emplace(job);
    if (added || entry->second + kMissed < now) {
      const auto earliest = std::max(now, last_ + pause_);
      // Jobs whose statuses were written for other reasons did not use their turns, so next_ may be too late.
      const auto latest = earliest + pause_ * static_cast<Clock::rep>(due_.size() - 1);
      entry->second = std::clamp(next_, earliest, latest);
      next_ = entry->second + pause_;
    }
    if (entry->second <= now) last_ = now;
    return entry->second;
  }

  // Records that the job's status was written, or that the job no longer exists.
  void written(const std::string& job) {
    const std::lock_guard lock(mutex_);
    due_.erase(job);
  }

 private:
  // A job that misses its turn by this much is assigned a new turn, so that jobs are not all due together after an
  // outage.
  static constexpr std::chrono::seconds kMissed{5};

  const Clock::duration pause_;
  std::mutex mutex_;
  std::map<std::string, Clock::time_point> due_;  // by namespace/name of the job
  Clock::time_point last_{};                      // when a job was last permitted to write
  Clock::time_point next_{};                      // the turn after the last one that was assigned
};

}  // namespace adaptdl::sched
