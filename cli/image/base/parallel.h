// Runs several jobs in parallel on a few threads.
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>

namespace adaptdl::image {

// Calls `job` with 0, 1, …, `count` - 1, up to `workers` calls at a time. A stop request to `stop` is passed on to the
// calls. If a call throws, the other calls receive a stop request, too, and the first exception is rethrown when all
// calls have ended. Otherwise, throws http::Stopped after a stop request to `stop`.
void for_each_parallel(std::size_t count, unsigned workers, const std::stop_token& stop,
                       const std::function<void(std::size_t, std::stop_token)>& job);

}  // namespace adaptdl::image
