#include "simulator/simulated_job.h"

#include <doctest/doctest.h>

#include <vector>

#include "simulator_files.h"

namespace adaptdl::sched::simulated_job_test {
namespace {

// Returns an application whose steps take 1 s on one replica and 1.25 s on two replicas of a node, at any batch size,
// and which does not profit from larger batches. An epoch is `iterations` iterations.
std::shared_ptr<const Application> steady(double iterations, int epochs = 2) {
  ApplicationData data;
  data.name = "steady";
  data.epochs = epochs;
  data.min_local_bsz = 4;
  data.max_local_bsz = 8;
  for (const std::size_t batch_size : {8U, 64U}) {
    for (int epoch = 1; epoch <= epochs; ++epoch) {
      data.validation[batch_size].push_back({epoch * iterations, epoch * iterations, 0, {1, 0}});
    }
  }
  const std::vector<StepTimes::PlacementRow> rows = {
      {{1}, 4, {1, 0}}, {{1}, 8, {1, 0}}, {{2}, 4, {1.25, 0.25}}, {{2}, 8, {1.25, 0.25}}, {{1, 1}, 4, {2, 1}}};
  return std::make_shared<const Application>(std::move(data), StepTimes(rows, {}));
}

WorkloadJob steady_job(double iterations, std::size_t batch_size = 8) {
  return {"job", 0, steady(iterations), 1, batch_size};
}

WorkloadJob paper_job(const std::string& application) {
  static const Applications loaded = load_traces(osdi21() / "traces");
  return {"job", 0, loaded.at(application), 1, loaded.at(application)->init_batch_size()};
}

TEST_CASE("a job without replicas makes no progress and attains no service") {
  const WorkloadJob origin = steady_job(10);
  SimulatedJob job(origin, false, 30);
  job.train(0, 60, 0);
  CHECK(job.progress() == 0);
  CHECK(job.attained_service() == 0);
  CHECK(job.batch_size() == 0);
}

TEST_CASE("each start costs time without progress, which still counts as attained service") {
  const WorkloadJob origin = steady_job(1000);
  SimulatedJob job(origin, false, 30);
  job.reallocate({1}, 1);
  CHECK(job.restarting());
  job.train(0, 20, 0);
  CHECK(job.progress() == 0);
  CHECK(job.attained_service() == 20);
  job.train(20, 40, 0);
  CHECK_FALSE(job.restarting());
  CHECK(job.progress() == doctest::Approx(30));
  CHECK(job.attained_service() == 60);
  job.reallocate({2}, 1);
  job.train(60, 60, 0);
  CHECK(job.attained_service() == 180);
  CHECK(job.progress() == doctest::Approx(30 + 30 / 1.25));
}

TEST_CASE("neither the first start nor the loss of all replicas counts as a restart") {
  const WorkloadJob origin = steady_job(1000);
  SimulatedJob job(origin, false, 30);
  CHECK(job.restarts() == 0);
  job.reallocate({1}, 1);
  CHECK(job.restarts() == 0);
  job.reallocate({}, 1);
  CHECK(job.restarts() == 0);
  job.reallocate({1}, 1);
  CHECK(job.restarts() == 1);
}

TEST_CASE("a job is complete at the end of its last epoch, rounded to whole seconds") {
  const WorkloadJob origin = steady_job(50.4);
  SimulatedJob job(origin, false, 30);
  job.reallocate({1}, 1);
  job.train(0, 60, 0);
  CHECK(job.epoch() == 0);
  job.train(60, 60, 0);  // the first epoch ends at 80.4 s, counted as 80
  CHECK(job.epoch() == 1);
  CHECK(job.progress() == doctest::Approx(50.4 + 40));
  job.train(120, 60, 0);
  REQUIRE(job.completion_time());
  CHECK(*job.completion_time() == 130);  // 10.4 s after 120
  CHECK(job.progress() == job.target_progress());
  CHECK(job.attained_service() == 130);  // not charged after its end
}

TEST_CASE("epochs that are shorter than a second are not rounded away") {
  const WorkloadJob origin = {"job", 0, steady(0.25, 100), 1, 8};
  SimulatedJob job(origin, false, 0);
  job.reallocate({1}, 1);
  job.train(0, 60, 0);
  REQUIRE(job.completion_time());
  CHECK(*job.completion_time() == doctest::Approx(25));
}

TEST_CASE("interference reduces the speed by a fraction, and faster GPUs shorten only computation") {
  const WorkloadJob origin = steady_job(1000);
  SimulatedJob slowed(origin, false, 0), fast(origin, false, 0);
  slowed.reallocate({2}, 1);
  slowed.train(0, 60, 0.5);
  CHECK(slowed.progress() == doctest::Approx(60 / 1.25 / 2));
  fast.reallocate({2}, 4);
  fast.train(0, 60, 0);
  CHECK(fast.progress() == doctest::Approx(60 / (1.0 / 4 + 0.25)));
  // The job learns the speedup on the GPU type of the traces.
  CHECK(fast.speedup()->goodput_function().throughput(1, 2, 4, 0) ==
        doctest::Approx(slowed.speedup()->goodput_function().throughput(1, 2, 4, 0)));
}

TEST_CASE("a user's batch size is split into atomic batches that fit the replicas") {
  const WorkloadJob origin = steady_job(1000, 36);
  SimulatedJob job(origin, false, 30);
  job.reallocate({1}, 1);
  CHECK(job.accum_steps() == 4);  // 5 x 8 for 36: atomic batch sizes are rounded up
  CHECK(job.batch_size() == 40);
  job.reallocate({2}, 1);
  CHECK(job.accum_steps() == 2);  // 2 x 3 x 6
  CHECK(job.batch_size() == 36);
  const WorkloadJob full = steady_job(1000, 64);
  SimulatedJob largest(full, false, 30);
  largest.reallocate({1, 1, 1}, 1);
  CHECK(largest.batch_size() == 63);  // 3 x 3 x 8 would exceed the maximum
}

TEST_CASE("a single replica above the initial batch size uses gradient accumulation") {
  const WorkloadJob ncf = paper_job("ncf");
  SimulatedJob job(ncf, true, 30);
  CHECK(job.max_replicas() == 1);
  job.reallocate({1}, 1);
  CHECK(job.batch_size() == 32768);
  CHECK(job.accum_steps() == 1);
  const WorkloadJob plain = steady_job(1000, 8);
  SimulatedJob initial(plain, false, 30);
  initial.reallocate({1}, 1);
  CHECK(initial.accum_steps() == 0);
}

TEST_CASE("an unmeasured job uses the initial batch size, or the minimum for its replicas if that is larger") {
  const WorkloadJob cifar = paper_job("cifar10");
  SimulatedJob job(cifar, true, 30);
  CHECK(job.speedup() == nullptr);
  CHECK(job.profiled_replicas() == 0);
  job.reallocate({2}, 1);
  CHECK(job.batch_size() == 128);
  job.reallocate({4, 4}, 1);
  CHECK(job.batch_size() == 256);
}

TEST_CASE("a job learns from its runs and then uses its model's best batch size") {
  const WorkloadJob cifar = paper_job("cifar10");
  SimulatedJob job(cifar, true, 30);
  job.reallocate({4}, 1);
  job.train(0, 30, 0);
  CHECK(job.speedup() == nullptr);  // the job was restarting all the time
  job.train(30, 30, 0);
  REQUIRE(job.speedup());
  CHECK(job.profiled_replicas() == 4);
  const auto best = job.speedup()->goodput_function().optimize(1, 4, job.speedup()->limits());
  CHECK(job.batch_size() == 4 * best.atomic_bsz * static_cast<std::size_t>(best.accum_steps + 1));
  CHECK(job.batch_size() > 128);
  job.reallocate({1}, 1);
  job.train(60, 60, 0);
  CHECK(job.profiled_replicas() == 4);  // the maximum so far
}

TEST_CASE("the speedup function stays the same object until something new is learned") {
  const WorkloadJob imagenet = paper_job("imagenet");  // has long epochs
  SimulatedJob job(imagenet, true, 0);
  job.reallocate({1}, 1);
  job.train(0, 60, 0);
  job.train(60, 60, 0);
  job.train(120, 60, 0);
  const auto before = job.speedup();
  REQUIRE(job.epoch() == 0);
  job.train(180, 60, 0);
  CHECK(job.speedup() == before);
}

TEST_CASE("the number of replicas is limited to 64, and by a fixed batch size") {
  const WorkloadJob cifar = paper_job("cifar10"), bert = paper_job("bert"), wide = {"job", 0, bert.application, 1, 24};
  CHECK(SimulatedJob(cifar, true, 30).max_replicas() == 64);
  CHECK(SimulatedJob(bert, true, 30).max_replicas() == 64);
  CHECK(SimulatedJob(wide, false, 30).max_replicas() == 6);  // 24 / 4
}

TEST_CASE("the remaining time is that of the epochs after the current one") {
  const WorkloadJob origin = steady_job(100);
  SimulatedJob job(origin, false, 0);
  CHECK(job.remaining_time(1, 4) == doctest::Approx(100));
  CHECK(job.remaining_time(2, 4) == doctest::Approx(125));
  CHECK(job.remaining_time(2, 1) == doctest::Approx(200));  // one replica per node
  job.reallocate({1}, 1);
  job.train(0, 120, 0);
  CHECK(job.remaining_time(1, 4) == doctest::Approx(1));  // the last epoch counts as one step
}

}  // namespace
}  // namespace adaptdl::sched::simulated_job_test
