#include "terminal/runs_table.h"

#include <doctest/doctest.h>

namespace runs_table_test {

using namespace adaptdl;
using namespace std::chrono_literals;

TEST_CASE("each run has a row, with dashes for unknown values") {
  const auto noon = std::chrono::system_clock::from_time_t(1'700'000'000);
  std::vector<sched::RunStatus> runs(3);
  runs[0].name = "new";
  runs[0].started = noon;
  runs[0].progress = {{"epoch", 0.294}};
  runs[1].name = "trains";
  runs[1].state = "rescaling";
  runs[1].why = "the other run ended";
  runs[1].replicas = 2;
  runs[1].wanted = 3;
  runs[1].started = noon - 26h;
  runs[1].progress = {
      {"epoch", 3}, {"loss", 0.123456}, {"batch_size", 4096}, {"samples_per_s", 12345.6}, {"goodput", 7.25}};
  runs[1].restarts = 2;
  runs[2].name = "over";
  runs[2].state = "done";
  runs[2].wanted = 4;
  runs[2].started = noon - 100s;
  runs[2].ended = noon - 35s;
  runs[2].progress = {{"loss", "nan"}, {"epoch", nullptr}};
  CHECK(cli::runs_table(runs, noon + 5s).render() ==
        "NAME    STATE      REPLICAS  EPOCH    LOSS  BATCH  SAMPLES/S  GOODPUT  RESTARTS         TIME  WHY\n"
        "new     starting        0/0   0.29       -      -          -        -         0         0:05\n"
        "trains  rescaling       2/3      3  0.1235  4,096     12,346      7.2         2  1d 02:00:05  the other run "
        "ended\n"
        "over    done            -/4      -       -      -          -        -         0         1:05\n");
}

}  // namespace runs_table_test
