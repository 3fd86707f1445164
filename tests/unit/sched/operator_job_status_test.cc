// Tests the status of jobs, and when hints are written to it.
#include <doctest/doctest.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "kube/api/json_fields.h"
#include "operator/jobs/hint_pace.h"
#include "operator/jobs/job_status.h"
#include "operator_state_support.h"

namespace operator_job_status_test {

using namespace adaptdl::sched;
using namespace operator_state_support;
using namespace std::chrono_literals;

namespace {

json patched(json job, const json& patch) {
  if (!patch.is_null()) job["status"].merge_patch(patch);
  return job;
}

}  // namespace

TEST_CASE("no patch is created for a status that is unchanged or whose changes have already been applied") {
  const json job = make_job({{"phase", "Running"}, {"phaseSince", "2026-11-21T12:00:00Z"}, {"replicas", 2}});
  CHECK(JobStatus(job, kNow).patch().is_null());
  JobStatus status(job, kNow);
  status.set_ready(2);
  const json after = patched(job, status.patch());
  JobStatus again(after, kNow + 1s);
  again.set_ready(2);
  CHECK(again.patch().is_null());
}

TEST_CASE("one patch adds, changes and removes hints in the status") {
  const std::vector<json> all = {{{"progress", 1}},
                                 {{"progress", 2}, {"perfParams", {{"a", 1}, {"b", 2}}}},
                                 {{"perfParams", {{"b", 3}}}},
                                 {{"perfParams", {{"c", {{"d", 1}}}}}},
                                 {{"perfParams", 7}, {"localBszBounds", {1, 2}}},
                                 {{"perfParams", {{"a", 1}}}}};
  for (const json& before : all) {
    for (const json& hints : all) {
      const json job = make_job({{"phase", "Running"}, {"train", before}});
      JobStatus status(job, kNow);
      status.set_hints(hints);
      const json after = patched(job, status.patch());
      CHECK(after["status"]["train"] == hints);
      JobStatus again(after, kNow + 1s);
      again.set_hints(json::object());  // a supervisor has not received hints yet
      CHECK(again.patch().is_null());
    }
  }
}

TEST_CASE("attained service increases while the job runs and is kept when it stops") {
  const json job =
      make_job({{"phase", "Running"}, {"phaseSince", "2026-11-21T12:00:00Z"}, {"replicas", 2}, {"attainedService", 5}});
  CHECK(attained_service(job, kNow) == 1205);
  JobStatus status(job, kNow);
  status.stop("Reallocated", "", {"a"}, 0, 0s);
  const json stopped = patched(job, status.patch());
  CHECK(attained_service(stopped, kNow + 1h) == 1205);
  CHECK(attained_service(job, *parse_time("2026-11-21T11:00:00Z")) == 5);  // the clock was set back
  CHECK(attained_service(make_job({{"phase", "Running"}, {"phaseSince", 3}, {"attainedService", "x"}}), kNow) == 0);
}

TEST_CASE("a condition's transition time changes only with its status, and its message is not empty") {
  JobStatus started(make_job({{"phase", "Pending"}}), kNow);
  started.start(0, {"a"}, "chosen");
  const json job = patched(make_job({{"phase", "Pending"}}), started.patch());
  JobStatus running(job, kNow + 10s);
  running.set_phase("Running", "Allocated", "chosen");
  const json after = patched(job, running.patch());
  for (const json& condition : after["status"]["conditions"]) {
    const bool changed = condition["type"] == "Running";
    CHECK(condition["lastTransitionTime"] == adaptdl::kube::to_string(changed ? kNow + 10s : kNow));
    CHECK(condition.value("message", "none") != "");
    CHECK(condition["status"] == (condition["type"] == "Completed" ? "False" : "True"));
  }
}

TEST_CASE("hints are written immediately if few jobs have new hints, and otherwise in turn") {
  HintPace pace(100ms);
  const HintPace::Clock::time_point begin{1h};
  CHECK(pace.due("a", begin) == begin);
  CHECK(pace.due("b", begin) == begin + 100ms);
  CHECK(pace.due("c", begin) == begin + 200ms);
  CHECK(pace.due("b", begin + 50ms) == begin + 100ms);  // the job keeps its turn
  pace.written("a");
  CHECK(pace.due("a", begin + 50ms) == begin + 300ms);
  for (const char* job : {"a", "b", "c"}) pace.written(job);
  CHECK(pace.due("b", begin + 1s) == begin + 1s);
  pace.written("b");
  CHECK(pace.due("b", begin + 1s) == begin + 1s + 100ms);  // even if no other job is waiting
}

TEST_CASE("a job's unused turn to write hints does not delay other jobs, and missed turns are not all taken at once") {
  HintPace pace(100ms);
  const HintPace::Clock::time_point begin{1h};
  for (int job = 0; job < 100; ++job) pace.due(std::to_string(job), begin);
  for (int job = 1; job < 100; ++job) pace.written(std::to_string(job));
  CHECK(pace.due("new", begin) <= begin + 200ms);
  pace.written("0");
  pace.written("new");
  for (int job = 0; job < 100; ++job) pace.due(std::to_string(job), begin);
  std::set<HintPace::Clock::time_point> times;
  for (int job = 0; job < 100; ++job) times.insert(pace.due(std::to_string(job), begin + 1min));
  CHECK(times.size() == 100);
  CHECK(*times.rbegin() >= begin + 1min + 9s);
}

}  // namespace operator_job_status_test
