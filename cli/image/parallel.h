// Several things at once, on a few threads.
//
// Threading: called from one thread, which waits.
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>

namespace adaptdl::image {

// Calls `job` with 0, 1, … `count` - 1, up to `workers` calls at a time. The first that throws asks the others to stop,
// as `stop` does too; when all have ended, what it threw is thrown here.
void for_each_parallel(std::size_t count, unsigned workers, const std::stop_token& stop,
                       const std::function<void(std::size_t, std::stop_token)>& job);

}  // namespace adaptdl::image
