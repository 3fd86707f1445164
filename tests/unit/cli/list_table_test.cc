#include "view/list_table.h"

#include <doctest/doctest.h>

#include "view/job_text.h"
#include "view/status_line.h"

namespace list_table_test {

using namespace adaptdl;
using namespace std::chrono_literals;

namespace {

const kube::Time kNoon = std::chrono::system_clock::from_time_t(1'700'000'000);

kube::JobView make_job(const std::string& name) {
  kube::JobView view;
  view.job.name_space = "ns";
  view.job.name = name;
  view.job.created = kNoon - 26h;
  return view;
}

}  // namespace

TEST_CASE("each run has a row, with dashes for unknown values") {
  sched::RunStatus fresh, rescaling, over;
  fresh.name = "new";
  fresh.started = kNoon;
  fresh.progress = {{"epoch", 0.294}};
  rescaling.name = "trains";
  rescaling.state = "rescaling";
  rescaling.why = "the other run ended";
  rescaling.replicas = 2;
  rescaling.wanted = 3;
  rescaling.started = kNoon - 26h;
  rescaling.progress = {{"epoch", 3},      {"loss", 0.123456}, {"batch_size", 4096},   {"samples_per_s", 12345.6},
                        {"goodput", 7.25}, {"progress", 29},   {"targetProgress", 100}};
  rescaling.restarts = 2;
  over.name = "over";
  over.state = "done";
  over.wanted = 4;
  over.started = kNoon - 100s;
  over.ended = kNoon - 35s;
  over.progress = {{"loss", "nan"}, {"epoch", nullptr}};
  const kube::Time now = kNoon + 5s;
  const std::vector rows = {cli::list_row(fresh, now), cli::list_row(rescaling, now), cli::list_row(over, now)};
  CHECK(cli::list_table(rows, false, false).render() ==
        "NAME    WHERE  STATE      REPLICAS  RESTARTS  PROGRESS  EPOCH    LOSS  SAMPLES/S  GOODPUT      RUNTIME  WHY\n"
        "new     local  starting        0/0         0         -   0.29       -          -        -         0:05\n"
        "trains  local  rescaling       2/3         2       29%      3  0.1235     12,346      7.2  1d 02:00:05  the "
        "other run ended\n"
        "over    local  done            -/4         0         -      -       -          -        -         1:05\n");
}

TEST_CASE("each job has a row in the same table, which leaves out unknown columns on a terminal") {
  std::vector<kube::JobView> jobs = {make_job("trains"), make_job("new"), make_job("over")};
  jobs[0].job.phase = "Running";
  jobs[0].job.group = 2;
  jobs[0].job.train = {{"progress", 999}, {"targetProgress", 1000}};
  jobs[0].ready = 1;
  jobs[0].wanted = 2;
  jobs[1].why = "no node fits";
  jobs[2].job.phase = "Succeeded";
  jobs[2].job.completed = kNoon - 25h;
  std::vector<cli::ListRow> rows;
  for (const kube::JobView& job : jobs) rows.push_back(cli::list_row(job, "dev", false, kNoon));
  CHECK(cli::list_table(rows, false, false).render() ==
        "NAME    WHERE  STATE      REPLICAS  RESTARTS  PROGRESS  EPOCH  LOSS  SAMPLES/S  GOODPUT      RUNTIME  WHY\n"
        "trains  dev    running         1/2         2       99%      -     -          -        -  1d 02:00:00\n"
        "new     dev    pending         0/0         0         -      -     -          -        -            -  no node "
        "fits\n"
        "over    dev    succeeded         -         0         -      -     -          -        -      1:00:00\n");
  CHECK(cli::list_table(rows, false, true).render() ==
        "NAME    WHERE  STATE      REPLICAS  RESTARTS  PROGRESS      RUNTIME  WHY\n"
        "trains  dev    running         1/2         2       99%  1d 02:00:00\n"
        "new     dev    pending         0/0         0         -            -  no node fits\n"
        "over    dev    succeeded         -         0         -      1:00:00\n");
}

TEST_CASE("the goodput of a job is what its hints predict for its current replicas") {
  kube::JobView job = make_job("job");
  job.job.phase = "Running";
  job.job.allocation = {"a", "a"};
  job.job.train = {{"initBatchSize", 128},
                   {"maxBatchSize", 1280},
                   {"localBszBounds", {64, 256}},
                   {"maxProfiledReplicas", 2},
                   {"gradientAccumulation", true},
                   {"gradParams", {{"norm", 0.00136}, {"var", 0.000502}}},
                   {"perfParams",
                    {{"alpha_c", 0.121},
                     {"beta_c", 0.00568},
                     {"alpha_n", 0.0236},
                     {"beta_n", 0.00634},
                     {"alpha_r", 0.0118},
                     {"beta_r", 0.00317},
                     {"gamma", 1.14}}}};
  const auto two = cli::predicted_speed(job);
  REQUIRE(two);
  CHECK(two->speedup > 1);
  CHECK(cli::list_row(job, "dev", false, kNoon).goodput == cli::rate_text(two->goodput));
  job.job.phase = "Succeeded";
  CHECK(cli::list_row(job, "dev", false, kNoon).goodput == "-");
}

TEST_CASE("wide output has more columns, and listing all namespaces qualifies job names") {
  kube::JobView job = make_job("job");
  job.job.phase = "Running";
  job.job.group = 0;
  job.job.min_replicas = 1;
  job.job.max_replicas = 4;
  job.job.allocation = {"b", "a", "a"};
  job.job.train = {{"initBatchSize", 128}};
  const auto listed = [&] {
    const std::vector rows = {cli::list_row(job, "dev", true, kNoon)};
    return cli::list_table(rows, true, false).render();
  };
  CHECK(listed() ==
        "NAME    WHERE  STATE    REPLICAS  RESTARTS  PROGRESS  EPOCH  LOSS  SAMPLES/S  GOODPUT      RUNTIME    AGE  "
        "BOUNDS  BATCH  GPU-HOURS  COST  NODES  WHY\n"
        "ns/job  dev    running       0/0         0         -      -     -          -        -  1d 02:00:00  1d 2h     "
        "1:4    128          -     -  a,b\n");
  job.job.usage = {.gpu_seconds = 1800, .cost = 1.5, .gpus = 2, .cost_per_hour = 12, .since = kNoon - 90min};
  CHECK(listed() ==
        "NAME    WHERE  STATE    REPLICAS  RESTARTS  PROGRESS  EPOCH  LOSS  SAMPLES/S  GOODPUT      RUNTIME    AGE  "
        "BOUNDS  BATCH  GPU-HOURS   COST  NODES  WHY\n"
        "ns/job  dev    running       0/0         0         -      -     -          -        -  1d 02:00:00  1d 2h     "
        "1:4    128       3.50  19.50  a,b\n");
}

}  // namespace list_table_test
