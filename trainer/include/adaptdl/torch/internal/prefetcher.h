// Threads that create batches ahead of the training thread. This is internal to AdaptiveDataLoader.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace adaptdl::internal {

// Runs the jobs 0, 1, ..., count-1 on several threads. The jobs start in order, and job n + slots starts only after the
// result of job n has been taken, so job n may keep its result in slot n mod `slots`.
class Prefetcher {
 public:
  using Job = std::function<void(std::size_t worker, std::size_t number)>;

  // Starts `workers` threads that call `job`. `workers` and `slots` must be at least 1. Throws Error if a thread cannot
  // be created.
  Prefetcher(std::size_t workers, std::size_t slots, std::size_t count, Job job);
  // Starts no more jobs, and waits for the running jobs to end.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Waits for the next job, beginning with job 0, and calls `take` to move the job's result out of its slot, which is
  // free afterwards. If the job failed, this call and all later calls throw the job's exception instead.
  void take(const std::function<void(std::size_t slot)>& take);

 private:
  void work(std::size_t worker);
  void stop() noexcept;

  const std::size_t slots_;
  const std::size_t count_;
  const Job job_;
  std::mutex mutex_;
  std::condition_variable done_changed_, free_changed_;
  std::vector<bool> done_;                  // by slot; mutex_ guards the members from here to stopping_
  std::vector<std::exception_ptr> errors_;  // by slot
  std::size_t begun_ = 0;
  std::size_t taken_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace adaptdl::internal
