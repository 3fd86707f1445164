#include "local/base/checkpoint_watch.h"

#include <doctest/doctest.h>

namespace adaptdl::sched::checkpoint_watch_test {

TEST_CASE("a checkpoint reported by a replica is used if the launcher finds none itself") {
  for (const auto& directory :
       {std::optional<std::filesystem::path>(), std::optional<std::filesystem::path>("/nowhere")}) {
    CheckpointWatch watch(directory);
    watch.mark();
    CHECK_FALSE(watch.newest_since_mark());
    watch.reported("/elsewhere/7");
    REQUIRE(watch.newest_since_mark());
    CHECK(watch.newest_since_mark()->path == "/elsewhere/7");
    watch.mark();
    CHECK_FALSE(watch.newest_since_mark());
  }
}

}  // namespace adaptdl::sched::checkpoint_watch_test
