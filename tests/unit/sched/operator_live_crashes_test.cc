// Runs a job whose replicas follow generations in a simulated cluster, in which the operator may crash between any two
// API calls.
#include <doctest/doctest.h>

#include <initializer_list>
#include <utility>

#include "operator_cluster.h"
#include "operator_storm.h"

namespace operator_live_crashes_test {

using namespace adaptdl::sched;
using namespace adaptdl::sched::testing;

namespace {

constexpr auto kGrace = 120s;

// A cluster whose replicas follow the generations that the operator announces. The members of a generation start
// training when all of them have joined it. If one of them is asked to exit, all of them save and exit together.
struct LiveCluster : Cluster {
  struct Replica {
    int joins = 0;        // the first generation that may list it
    int generation = -1;  // the generation that it is in; -1: none yet
    bool broken = false;  // its group has broken, so it waits for another generation
    std::optional<PodEnd> end;
    std::optional<Time> exit_by;  // the end of its grace period, if it was asked to exit
  };
  using Numbers = std::vector<int>;

  std::map<std::string, Replica> replicas;  // by pod name
  std::map<std::pair<int, int>, Numbers> generations;
  std::optional<int> announced;  // latest generation of the current group
  ReplicaReports reports;
  Time leads_since{};
  std::set<std::pair<int, int>> formed;  // generations that all members have joined
  int killed_while_saving = 0, saved = 0;

  LiveCluster() { settings.live_rescale = true; }

  JobSituation situation() const override {
    JobSituation situation = Cluster::situation();
    situation.hints = {{"liveRescale", true}};
    situation.leads_since = leads_since;
    situation.reports = reports;
    return situation;
  }
  void forget() override {
    Cluster::forget();
    announced.reset();
    reports = {};
    leads_since = now;
  }
  void announce(const Plan& plan) override {
    if (plan.starts) {
      announced.reset();
      reports = {};
    }
    for (const PodRank& rank : plan.ranks) {
      if (PodFacts* pod = find(group(), rank.number))
        std::tie(pod->rank, pod->replicas) = std::pair(rank.rank, rank.replicas);
    }
    if (!plan.generation) return;
    announced = plan.generation->number;
    Numbers numbers;
    for (const auto& member : plan.generation->replicas) {
      const auto id = parse_replica_id(member.id);
      REQUIRE(id);
      CHECK(id->group == group());
      numbers.push_back(id->number);
    }
    const auto [known, added] = generations.try_emplace({group(), *announced}, numbers);
    CHECK(known->second == numbers);  // a new operator must announce the same members
  }

  PodFacts* find(int group, int number) {
    const auto found =
        std::ranges::find_if(pods, [&](const PodFacts& pod) { return pod.group == group && pod.number == number; });
    return found == pods.end() ? nullptr : &*found;
  }
  const PodFacts* find(int group, int number) const { return const_cast<LiveCluster*>(this)->find(group, number); }
  bool runs(const PodFacts& pod) const { return pod.running && pod.live() && runs_pods(pod.node); }
  int generation_of(const PodFacts& pod) const {
    const auto found = replicas.find(pod.name);
    return found == replicas.end() ? -1 : found->second.generation;
  }
  Numbers peers(const PodFacts& pod) const {
    const int generation = generation_of(pod);
    if (generation > 0) return generations.at({pod.group, generation});
    Numbers all;
    for (int number = 0; number < static_cast<int>(starts.at(pod.group).size()); ++number) all.push_back(number);
    return all;
  }
  // Returns whether all replicas of the pod's generation have joined it.
  bool trains(const PodFacts& pod) const {
    return generation_of(pod) >= 0 && std::ranges::all_of(peers(pod), [&](int number) {
             const PodFacts* peer = find(pod.group, number);
             return peer != nullptr && runs(*peer) && generation_of(*peer) == generation_of(pod) &&
                    !replicas.at(peer->name).broken;
           });
  }
  // Returns whether one of the pod's peers has ended or has left this generation.
  bool is_broken(const PodFacts& pod) const {
    return std::ranges::any_of(peers(pod), [&](int number) {
      const PodFacts* peer = find(pod.group, number);
      if (peer == nullptr || !alive(*peer) || !peer->live()) return true;
      const auto known = replicas.find(peer->name);
      const bool left = known != replicas.end() && (known->second.broken || generation_of(*peer) > generation_of(pod));
      return !runs_pods(peer->node) || left;
    });
  }

  // A replica that is training with all others must be given time to save.
  bool may_be_killed(const PodFacts& pod) const override { return Cluster::may_be_killed(pod) || !trains(pod); }
  void remove(const PodRemoval& removal) override {
    Cluster::remove(removal);
    const auto pod = std::ranges::find(pods, removal.uid, &PodFacts::uid);
    if (pod != pods.end() && !replicas[pod->name].exit_by) replicas[pod->name].exit_by = now + kGrace;
  }
  bool fails_with_others() const override { return false; }
  void end_together(PodFacts& pod, PodEnd how) override {
    if (!trains(pod)) return;
    for (const int number : peers(pod)) {
      std::optional<PodEnd>& end = replicas[find(pod.group, number)->name].end;
      if (!end) end = how;
    }
  }

  bool progress(std::size_t index) override {
    PodFacts& pod = pods[index];
    const bool began = pod.running;
    if (!began || !runs(pod)) {
      if (!Cluster::progress(index)) return false;
      if (!began && pods[index].running) begin(pods[index]);
      return true;
    }
    Replica& replica = replicas[pod.name];
    if (trains(pod)) formed.insert({pod.group, replica.generation});
    const std::optional<int> next = pod.group == group() ? announced : std::nullopt;
    if (pod.leaving) end_together(pod, PodEnd::kCheckpointed);
    if (replica.end) {
      end(pod, *replica.end);
      if (replica.end == PodEnd::kCheckpointed) ++saved;
    } else if (next && *next > std::max(replica.generation, replica.joins - 1)) {
      const Numbers& listed = generations.at({pod.group, *next});
      if (std::ranges::find(listed, pod.number) != listed.end()) {
        replica.generation = *next;
        replica.broken = false;
      } else if (replica.generation >= 0) {
        end(pod, PodEnd::kSucceeded);
      }
    } else if (trains(pod)) {
      if (pod.group == group()) reports.trains = std::max(reports.trains, replica.generation);
    } else if (replica.generation < 0) {
      if (pod.group == group()) reports.waits[pod.number] = {.after = replica.joins - 1, .broken = false};
    } else if (pod.group == group() &&
               (replica.broken || (formed.contains({pod.group, replica.generation}) && is_broken(pod)))) {
      // While a generation is forming, its members wait for each other even if some of them end.
      replica.broken = true;
      reports.waits[pod.number] = {.after = replica.generation, .broken = true};
    }
    if (pod.live() && replica.exit_by && now >= *replica.exit_by) {
      if (replica.generation >= 0) ++killed_while_saving;
      end(pod, PodEnd::kLost);
    }
    return true;
  }
  void begin(const PodFacts& pod) {
    const bool joins = pod.number >= static_cast<int>(starts.at(pod.group).size());
    replicas[pod.name].generation = joins ? -1 : 0;
    if (joins) replicas[pod.name].joins = place_of(job, pod.number).generation;
  }

  // Runs `rounds` rounds, in which the allocator repeats its decision until the operator has followed it.
  void run(const Allocation& allocation, int rounds = 15) {
    for (int round = 0; round < rounds; ++round, now += 5s) {
      if (job["status"]["allocation"] != json(allocation)) decision = JobDecision{allocation, "chosen", true};
      all_progress();
      sync();
    }
  }
  Numbers members() const {
    Numbers all;
    for (const PodFacts& pod : pods) {
      if (pod.group == group() && trains(pod)) all.push_back(pod.number);
    }
    return all;
  }
};

void check_random_events(unsigned seeds, bool suspends = false) {
  int groups = 0, generations = 0;
  std::map<std::string, int> phases;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    CAPTURE(seed);
    LiveCluster cluster;
    Storm storm(seed, cluster, suspends);
    storm.rage(250);
    ++phases[cluster.phase()];
    if (suspends) storm.suspend();
    storm.calm();
    groups += cluster.group();
    generations += static_cast<int>(cluster.generations.size());
  }
  CHECK(groups > static_cast<int>(seeds));
  CHECK(2 * generations > static_cast<int>(seeds));
  CHECK(phases.size() >= 4);
}

// Allocates a third node to a job of two replicas, and lets the operator act for `rounds` rounds.
void begin_change(LiveCluster& cluster, int rounds) {
  cluster.may_crash = false;
  decide(cluster, {"a", "b"});
  cluster.run({"a", "b"}, 5);
  cluster.may_crash = true;
  cluster.run({"a", "b", "c"}, rounds);
}

void check_stops(std::initializer_list<int> all_rounds) {
  // The number of rounds determines how far the change has progressed when the job must stop.
  for (const int rounds : all_rounds) {
    CAPTURE(rounds);
    for (const bool node_lost : {false, true}) {
      CAPTURE(node_lost);
      for_each_crash<LiveCluster>([&](LiveCluster& cluster) {
        begin_change(cluster, rounds);
        if (node_lost) cluster.nodes["b"] = NodeState::kNotReady;
        cluster.run({}, 10);
        if (node_lost) cluster.nodes.erase("b");
        cluster.run({}, 5);
        CHECK(cluster.phase() == "Pending");
        CHECK(cluster.killed_while_saving == 0);
        CHECK(cluster.saved > 0);
        CHECK(cluster.pods.empty());
      });
    }
  }
}

}  // namespace

TEST_CASE("after a crash at any point, the next operator continues a change of members" * doctest::test_suite("slow")) {
  const int points = for_each_crash<LiveCluster>([](LiveCluster& cluster) {
    decide(cluster, {"a"});
    cluster.run({"a"});
    CHECK(cluster.members() == std::vector{0});
    cluster.run({"a", "b", "c"});
    CHECK(cluster.members() == std::vector{0, 1, 2});
    cluster.run({"b", "c"});
    CHECK(cluster.members() == std::vector{1, 2});
    cluster.nodes.erase("c");
    cluster.run({"b", "c"}, 3);
    CHECK(cluster.members() == std::vector{1});
    cluster.run({"a", "b"});
    CHECK(cluster.members().size() == 2);
    CHECK(cluster.group() == 0);
    CHECK(cluster.pods.size() == 2);
    cluster.end_together(cluster.pods[0], PodEnd::kSucceeded);
    cluster.run({"a", "b"}, 5);
    CHECK(cluster.phase() == "Succeeded");
  });
  CHECK(points > 30);
}

TEST_CASE("a job that stops during a change of members saves a checkpoint, even if the operator crashes" *
          doctest::test_suite("slow")) {
  check_stops({0, 2});
}

TEST_CASE("a job that stops 1 or 4 rounds into a change of members saves a checkpoint, even if the operator crashes" *
          doctest::test_suite("full")) {
  check_stops({1, 4});
}

TEST_CASE("a job that is suspended during a change of members saves a checkpoint, even if the operator crashes" *
          doctest::test_suite("slow")) {
  for (const int rounds : {0, 2}) {
    CAPTURE(rounds);
    for_each_crash<LiveCluster>([&](LiveCluster& cluster) {
      begin_change(cluster, rounds);
      cluster.job["spec"]["suspend"] = true;
      cluster.run({"a", "b", "c"});
      CHECK(cluster.phase() == "Suspended");
      CHECK(cluster.killed_while_saving == 0);
      CHECK(cluster.saved > 0);
      CHECK(cluster.pods.empty());
      cluster.job["spec"]["suspend"] = false;
      cluster.run({"c"});
      CHECK(cluster.members() == std::vector{0});
      CHECK(cluster.group() == 1);
    });
  }
}

TEST_CASE("random events and crashes never leave a stuck job or two live groups") { check_random_events(10); }

TEST_CASE("random events and suspensions never leave a stuck job or two live groups" * doctest::test_suite("slow")) {
  check_random_events(15, true);
}

TEST_CASE("thousands of random events never leave a stuck job or two live groups" * doctest::test_suite("full")) {
  check_random_events(2'000);
  check_random_events(500, true);
}

}  // namespace operator_live_crashes_test
