#include "adaptdl/torch/internal/prefetcher.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "adaptdl/error.h"

namespace adaptdl::internal {

Prefetcher::Prefetcher(std::size_t workers, std::size_t slots, std::size_t count, Job job)
    : slots_(slots), count_(count), job_(std::move(job)), done_(slots, false), errors_(slots) {
  threads_.reserve(workers);
  try {
    for (std::size_t worker = 0; worker < workers; ++worker) threads_.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error& error) {
    stop();
    throw Error(fmt::format("cannot start {} data loader workers: {}", workers, error.what()));
  }
}

Prefetcher::~Prefetcher() { stop(); }

void Prefetcher::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  free_changed_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Prefetcher::take(const std::function<void(std::size_t slot)>& take) {
  const auto slot = taken_ % slots_;  // only this thread changes taken_
  std::exception_ptr error;
  {
    std::unique_lock lock(mutex_);
    done_changed_.wait(lock, [&] { return done_[slot]; });
    error = errors_[slot];
  }
  if (error) std::rethrow_exception(error);
  take(slot);
  {
    const std::lock_guard lock(mutex_);
    done_[slot] = false;
    ++taken_;
  }
  free_changed_.notify_one();
}

void Prefetcher::work(std::size_t worker) {
  std::unique_lock lock(mutex_);
  for (;;) {
    free_changed_.wait(lock, [&] { return stopping_ || begun_ >= count_ || begun_ < taken_ + slots_; });
    if (stopping_ || begun_ >= count_) return;
    const auto number = begun_++;
    lock.unlock();
    std::exception_ptr error;
    try {
      job_(worker, number);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    errors_[number % slots_] = std::move(error);
    done_[number % slots_] = true;
    done_changed_.notify_one();
  }
}

}  // namespace adaptdl::internal
