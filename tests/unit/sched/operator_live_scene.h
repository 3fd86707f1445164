// A job whose program follows generations, for tests of changes of its members.
#pragma once

#include <doctest/doctest.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "operator/jobs/members_plan.h"
#include "operator_scene.h"

namespace adaptdl::sched::testing {

// A job that follows generations, in a cluster that executes the plans.
struct LiveScene : Scene {
  explicit LiveScene(const Allocation& allocation, int min = 1) : Scene(running(allocation)) {
    job["spec"]["minReplicas"] = min;
    settings.live_rescale = true;
    hints = {{"liveRescale", true}};
    reports.trains = 0;
  }

  // Executes a plan and creates the pods that it lists. Removed pods end when a test says so.
  Plan act() {
    Plan plan = step();
    for (const int number : plan.missing) {
      const auto stored = parse_membership(job);
      std::string node = stored ? "" : allocation().at(static_cast<std::size_t>(number));
      for (const auto& replica : stored ? stored->state.replicas : std::vector<MembershipState::Replica>()) {
        if (replica.number == number) node = replica.device;
      }
      pods.push_back(make_pod(number, node, job["status"]["group"].get<int>()));
      if (stored) pods.back().rank = 99;
    }
    for (const PodRank& rank : plan.ranks) {
      PodFacts& pod = named(rank.name);
      pod.rank = rank.rank;
      pod.replicas = rank.replicas;
    }
    for (const PodRemoval& removal : plan.removals) {
      PodFacts& pod = named(removal.name);
      pod.leaving = true;
      removed.insert(pod.number);
      if (removal.force) std::erase_if(pods, [&](const PodFacts& each) { return each.name == removal.name; });
    }
    if (plan.generation) generation = plan.generation;
    for (const JobEvent& event : plan.events) events.push_back(event.reason + ": " + event.message);
    return plan;
  }
  // Acts until nothing more is planned.
  void settle() {
    for (int steps = 0; steps < 20; ++steps) {
      if (act().changes_nothing()) return;
    }
    FAIL("it does not settle");
  }
  PodFacts& named(const std::string& name) {
    for (PodFacts& pod : pods) {
      if (pod.name == name) return pod;
    }
    throw adaptdl::Error("no pod " + name);
  }
  PodFacts& pod(int number) {
    return named("job-u-" + std::to_string(job["status"]["group"].get<int>()) + '-' + std::to_string(number));
  }
  void wait(int number) { reports.waits[number] = {.after = 0, .broken = false}; }
  void train() { reports.trains = generation->number; }
  void end(int number, PodEnd how) { pod(number) = ended(pod(number), how); }
  void erase(int number) {
    std::erase_if(pods, [&](const PodFacts& each) { return each.number == number; });
  }
  std::vector<std::string> members() const {
    std::vector<std::string> ids;
    for (const auto& member : generation->replicas) ids.push_back(member.id);
    return ids;
  }
  int replicas() const { return job["status"]["replicas"].get<int>(); }

  std::optional<adaptdl::generation::Generation> generation;
  std::set<int> removed;
  std::vector<std::string> events;
};

using Ids = std::vector<std::string>;

// Returns a job that is growing from {a} to {a, b}, for which the generation with both members has been
// announced.
inline LiveScene forming() {
  LiveScene scene({"a"});
  scene.decision = nodes({"a", "b"});
  scene.settle();
  scene.wait(1);
  scene.settle();
  REQUIRE(scene.members() == std::vector<std::string>{"0-0", "0-1"});
  return scene;
}

// Returns the job of forming() after both members have started training.
inline LiveScene grown() {
  LiveScene scene = forming();
  scene.train();
  scene.settle();
  return scene;
}

}  // namespace adaptdl::sched::testing
