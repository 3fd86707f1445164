#include "terminal/jobs_table.h"

#include <doctest/doctest.h>

namespace jobs_table_test {

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

TEST_CASE("runs and jobs are listed in one table, with dashes for unknown values") {
  std::vector<sched::RunStatus> runs(2);
  runs[0].name = "mine";
  runs[0].state = "running";
  runs[0].replicas = 1;
  runs[0].wanted = 2;
  runs[0].started = kNoon - 65s;
  runs[0].progress = {{"epoch", 3}};
  runs[1] = runs[0];
  runs[1].name = "other";
  runs[1].progress = {{"epoch", 0.3}, {"progress", 29}, {"targetProgress", 100}};
  std::vector<kube::JobView> jobs = {make_job("trains"), make_job("new"), make_job("over")};
  jobs[0].job.phase = "Running";
  jobs[0].job.group = 2;
  jobs[0].job.train = {{"progress", 999}, {"targetProgress", 1000}};
  jobs[0].ready = 1;
  jobs[0].wanted = 2;
  jobs[1].why = "no node fits";
  jobs[2].job.phase = "Succeeded";
  jobs[2].job.completed = kNoon - 25h;
  CHECK(cli::jobs_table(runs, jobs, {.context = "dev", .namespaces = false, .wide = false}, kNoon).render() ==
        "NAME    WHERE  STATUS     REPLICAS  RESTARTS  PROGRESS    AGE      RUNTIME  WHY\n"
        "mine    local  running         1/2         0   epoch 3  1m 5s         1:05\n"
        "other   local  running         1/2         0       29%  1m 5s         1:05\n"
        "trains  dev    running         1/2         2       99%  1d 2h  1d 02:00:00\n"
        "new     dev    pending         0/0         0         -  1d 2h            -  no node fits\n"
        "over    dev    succeeded         -         0         -  1d 2h      1:00:00\n");
}

TEST_CASE("wide output has more columns, and listing all namespaces qualifies job names") {
  kube::JobView job = make_job("job");
  job.job.phase = "Running";
  job.job.group = 0;
  job.job.min_replicas = 1;
  job.job.max_replicas = 4;
  job.job.allocation = {"b", "a", "a"};
  job.job.train = {{"initBatchSize", 128}};
  const cli::JobsTableStyle style{.context = "dev", .namespaces = true, .wide = true};
  CHECK(cli::jobs_table({}, {&job, 1}, style, kNoon).render() ==
        "NAME    WHERE  STATUS   REPLICAS  RESTARTS  PROGRESS    AGE      RUNTIME  BOUNDS  BATCH  GPU-HOURS  COST  "
        "NODES  WHY\n"
        "ns/job  dev    running       0/0         0         -  1d 2h  1d 02:00:00     1:4    128          -     -  "
        "a,b\n");
  job.job.usage = {.gpu_seconds = 1800, .cost = 1.5, .gpus = 2, .cost_per_hour = 12, .since = kNoon - 90min};
  CHECK(cli::jobs_table({}, {&job, 1}, style, kNoon).render() ==
        "NAME    WHERE  STATUS   REPLICAS  RESTARTS  PROGRESS    AGE      RUNTIME  BOUNDS  BATCH  GPU-HOURS   COST  "
        "NODES  WHY\n"
        "ns/job  dev    running       0/0         0         -  1d 2h  1d 02:00:00     1:4    128       3.50  19.50  "
        "a,b\n");
}

}  // namespace jobs_table_test
