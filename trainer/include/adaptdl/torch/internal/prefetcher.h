// Threads that make batches ahead of the training thread. Part of AdaptiveDataLoader; no public interface.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace adaptdl::internal {

// Runs the jobs 0, 1, ..., count-1 on several threads: they begin in order, and job n + slots begins only after n was
// taken. So a job may keep its result in slot n mod `slots`.
class Prefetcher {
 public:
  using Job = std::function<void(std::size_t worker, std::size_t number)>;

  // Starts `workers` threads, >= 1; `slots` >= 1. `job` is called by all of them at the same time.
  // Throws Error if the system gives no thread.
  Prefetcher(std::size_t workers, std::size_t slots, std::size_t count, Job job);
  // Begins no more jobs, and returns once those that run have ended.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Waits for the job of the next number, first 0. Rethrows what that job threw.
  // `take` is called to take its result out of its slot, which is free afterwards.
  void take(const std::function<void(std::size_t slot)>& take);

 private:
  void work(std::size_t worker);
  void stop() noexcept;

  const std::size_t slots_;
  const std::size_t count_;
  const Job job_;
  std::mutex mutex_;
  std::condition_variable done_changed_, free_changed_;
  std::vector<bool> done_;                  // by slot; guarded by mutex_, as what follows
  std::vector<std::exception_ptr> errors_;  // by slot
  std::size_t begun_ = 0;
  std::size_t taken_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace adaptdl::internal
