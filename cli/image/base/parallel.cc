#include "image/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "http/http.h"

namespace adaptdl::image {

void for_each_parallel(std::size_t count, unsigned workers, const std::stop_token& stop,
                       const std::function<void(std::size_t, std::stop_token)>& job) {
  std::stop_source all;
  const std::stop_callback pass_on(stop, [&] { all.request_stop(); });
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr first;
  const auto work = [&] {
    for (std::size_t i = next++; i < count && !all.stop_requested(); i = next++) try {
        job(i, all.get_token());
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!first) first = std::current_exception();
        all.request_stop();
      }
  };
  {
    std::vector<std::jthread> threads;
    const std::size_t thread_count = std::min<std::size_t>(std::max(workers, 1u), count);
    for (std::size_t i = 1; i < thread_count; ++i) threads.emplace_back(work);
    work();
  }
  if (first) std::rethrow_exception(first);
  if (stop.stop_requested()) throw http::Stopped();
}

}  // namespace adaptdl::image
