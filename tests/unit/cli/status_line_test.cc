#include "view/status_line.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace status_line_test {

using namespace adaptdl::cli;
using namespace std::chrono_literals;
using nlohmann::json;

TEST_CASE("the status line shows all reported values") {
  const json progress = {{"epoch", 3},       {"step", 120.0},           {"steps", 6000},
                         {"loss", 0.123456}, {"samples_per_s", 5120.4}, {"batch_size", 64}};
  CHECK(status_text(progress, 2, 67s, 200) ==
        "epoch 3  step 120/6,000  loss 0.1235  5,120 samples/s  batch 64  2 replicas  1:07");
}

TEST_CASE("the status line shows the number of replicas and the elapsed time even without a report") {
  CHECK(status_text(json::object(), 1, 5s, 80) == "1 replica  0:05");
}

TEST_CASE("the status line omits values that are not numbers") {
  const json progress = {{"epoch", "three\x1b[2J"},
                         {"step", nullptr},
                         {"loss", std::numeric_limits<double>::quiet_NaN()},
                         {"samples_per_s", 0.5},
                         {"batch_size", json::array()}};
  CHECK(status_text(progress, 3, 0s, 80) == "0.5 samples/s  3 replicas  0:00");
  CHECK(status_text({{"step", 1e300}}, 1, 0s, 80) == "step 1e+300  1 replica  0:00");
}

TEST_CASE("progress in Kubeflow's format is shown with fractional epochs and the time left") {
  json progress = {{"progress", 29}, {"targetProgress", 100}, {"remaining_s", 795}, {"epoch", 0.294}, {"loss", 0.23469},
                   {"step", 29},     {"steps", 100}};
  CHECK(status_text(progress, 1, 5s, 200) == "epoch 0.29  step 29/100  loss 0.2347  1 replica  0:05  13:15 left");
  progress.erase("step");
  progress["epoch"] = 2.0;
  CHECK(status_text(progress, 1, 5s, 200) == "epoch 2  29%  loss 0.2347  1 replica  0:05  13:15 left");
  CHECK(status_text({{"remaining_s", 1e300}}, 1, 5s, 80) == "1 replica  0:05");
}

TEST_CASE("percentages are rounded down, so that 100% means done") {
  for (int i = 0; i <= 100; ++i)
    CHECK(percent_text({{"progress", i}, {"targetProgress", 100}}) == fmt::format("{}%", i));
  CHECK(percent_text({{"progress", 99.99}, {"targetProgress", 100}}) == "99%");
  CHECK(percent_text({{"progress", 7}, {"targetProgress", 3}}) == "100%");
  CHECK_FALSE(percent_text({{"progress", 7}, {"targetProgress", 0}}));
  CHECK_FALSE(percent_text({{"progress", 7}}));
}

TEST_CASE("the status line never exceeds the given width") {
  CHECK(status_text({{"epoch", 3}, {"loss", 0.5}}, 2, 0s, 12) == "epoch 3  lo…");
  CHECK(status_text({{"epoch", 3}}, 2, 0s, 0) == "");
}

}  // namespace status_line_test
