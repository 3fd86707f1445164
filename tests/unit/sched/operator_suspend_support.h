// Helpers for tests of jobs that are suspended and resumed.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "operator/jobs/job_status.h"
#include "operator_scene.h"

namespace operator_suspend_support {

using namespace adaptdl::sched;
using namespace adaptdl::sched::testing;

template <typename SceneType>
SceneType suspended(SceneType scene) {
  scene.job["spec"]["suspend"] = true;
  return scene;
}

inline void resume(Scene& scene) { scene.job["spec"]["suspend"] = false; }

inline bool waits_for_first_fit(const Scene& scene) {
  return adaptdl::sched::waits_for_first_fit(adaptdl::kube::parse_job(scene.job));
}

inline std::vector<std::string> reasons(const Plan& plan) {
  std::vector<std::string> all;
  for (const JobEvent& event : plan.events) {
    CHECK_FALSE(event.warning);
    all.push_back(event.reason);
  }
  return all;
}

// Returns a job that was suspended while it was running, and whose pods have ended.
inline Scene stopped() {
  Scene scene = suspended(running({"a", "b"}));
  scene.step();
  scene.pods.clear();
  scene.step();
  REQUIRE(scene.phase() == "Suspended");
  return scene;
}

}  // namespace operator_suspend_support
