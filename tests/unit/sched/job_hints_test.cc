#include "policy/base/job_hints.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

namespace job_hints_test {

using namespace adaptdl;
using namespace adaptdl::sched;
using nlohmann::json;

namespace {

const json kHints{{"initBatchSize", 128},
                  {"maxBatchSize", 1024},
                  {"localBszBounds", {32, 128}},
                  {"gradientAccumulation", true},
                  {"maxProfiledReplicas", 3},
                  {"gradParams", {{"norm", 0.5}, {"var", 2.0}}},
                  {"perfParams",
                   {{"alpha_c", 0.1},
                    {"beta_c", 0.01},
                    {"alpha_n", 0.2},
                    {"beta_n", 0.02},
                    {"alpha_r", 0.05},
                    {"beta_r", 0.001},
                    {"gamma", 1.5}}},
                  {"progress", 7.5},
                  {"targetProgress", 70}};

JobInfo job(const json& hints, int max_replicas = 64) {
  JobInfo job;
  job.min_replicas = 2;
  job.max_replicas = max_replicas;
  apply_hints(hints, job);
  return job;
}

}  // namespace

TEST_CASE("hints set the job's speedup, progress and maximum number of replicas") {
  const JobInfo measured = job(kHints);
  REQUIRE(measured.speedup);
  const goodput::GoodputFunction model({0.1, 0.01, 0.2, 0.02, 0.05, 0.001, 1.5}, {0.5, 2.0}, 128);
  const goodput::Limits limits{1024, 32, 128, true};
  for (const int replicas : {1, 2, 5})
    CHECK(measured.speedup->goodput(1, replicas) == doctest::Approx(model.optimize(1, replicas, limits).goodput));
  CHECK(measured.profiled_replicas == 3);
  CHECK(measured.progress == 7.5);
  CHECK(measured.target_progress == 70);
  CHECK(measured.max_replicas == 1024 / 32);
  CHECK(job(kHints, 5).max_replicas == 5);
}

TEST_CASE("the initial batch size caps the number of replicas, but not below the minimum") {
  CHECK(job({{"initBatchSize", 16}}).max_replicas == 16);
  CHECK(job({{"initBatchSize", 1}}).max_replicas == 2);
  CHECK(job(json::object()).max_replicas == 64);
}

TEST_CASE("a fixed batch size needs no gradient statistics, and its goodput is the throughput") {
  json hints = kHints;
  hints["gradParams"] = hints["maxBatchSize"] = hints["localBszBounds"] = nullptr;
  const JobInfo fixed = job(hints);
  REQUIRE(fixed.speedup);
  const goodput::GoodputFunction model({0.1, 0.01, 0.2, 0.02, 0.05, 0.001, 1.5}, {3.0, 4.0}, 128);
  for (const int replicas : {1, 2, 4})
    CHECK(fixed.speedup->goodput(1, replicas) == doctest::Approx(model.throughput(1, replicas, 128.0 / replicas, 0)));
  CHECK(fixed.max_replicas == 64);
}

TEST_CASE("incomplete or contradictory hints yield no speedup function") {
  for (const char* name : {"initBatchSize", "gradParams", "perfParams"}) {
    json hints = kHints;
    hints.erase(name);
    CHECK_FALSE(job(hints).speedup);
    hints[name] = nullptr;
    CHECK_FALSE(job(hints).speedup);
  }
  json hints = kHints;
  hints["perfParams"].erase("gamma");
  CHECK_FALSE(job(hints).speedup);
  hints = kHints;
  hints["maxBatchSize"] = 64;
  CHECK_FALSE(job(hints).speedup);
  hints["localBszBounds"] = {nullptr, nullptr};
  CHECK(job(hints).max_replicas == 64);
}

}  // namespace job_hints_test
