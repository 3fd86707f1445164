#include "simulator/step_times.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "simulator/application.h"
#include "simulator/csv.h"
#include "simulator_files.h"

namespace adaptdl::sched::step_times_test {
namespace {

using Placement = std::vector<int>;

const Applications& applications() {
  static const Applications loaded = load_traces(osdi21() / "traces");
  return loaded;
}

Placement digits(const std::string& text) {
  Placement placement;
  for (const char digit : text) placement.push_back(digit - '0');
  return placement;
}

// Returns a placement on `nodes` nodes with four replicas each.
Placement full(std::size_t nodes) { return Placement(nodes, 4); }

void check_near(const StepTime& time, const StepTime& expected) {
  CHECK(time.step == doctest::Approx(expected.step).epsilon(1e-12));
  CHECK(time.sync == doctest::Approx(expected.sync).epsilon(1e-12));
}

TEST_CASE("step times are exact at the measured placements of the paper and their rotations") {
  for (const auto& [name, application] : applications()) {
    const Csv csv(osdi21() / "traces" / name / "placements.csv", {});
    for (std::size_t row = 0; row < csv.rows(); ++row) {
      const auto local_bsz = static_cast<std::size_t>(csv.count(row, "local_bsz"));
      const StepTime measured{csv.number(row, "step_time"), csv.number(row, "sync_time")};
      Placement placement = digits(csv.text(row, "placement"));
      for (std::size_t i = 0; i < placement.size(); ++i) {
        REQUIRE(application->step_times().at(placement, local_bsz) == measured);
        std::rotate(placement.begin(), placement.begin() + 1, placement.end());
      }
    }
  }
}

TEST_CASE("step times match the measurements with the same numbers of nodes and replicas") {
  for (const auto& each : applications()) {
    CAPTURE(each.first);
    const Csv csv(osdi21() / "traces" / each.first / "scalability.csv", {});
    for (std::size_t row = 0; row < csv.rows(); ++row) {
      const auto nodes = static_cast<std::size_t>(csv.count(row, "num_nodes"));
      auto placement = Placement(nodes, 1);
      for (int left = csv.count(row, "num_replicas") - static_cast<int>(nodes); left > 0; --left) {
        ++placement[static_cast<std::size_t>(left) % nodes];
      }
      CAPTURE(row);
      check_near(each.second->step_times().at(placement, static_cast<std::size_t>(csv.count(row, "local_bsz"))),
                 {csv.number(row, "step_time"), csv.number(row, "sync_time")});
    }
  }
}

// The references are computed with SciPy 1.11 from an application's pandas frames `placements` and `scalability`:
//   keys = ["num_nodes", "num_replicas", "local_bsz"]
//   points = pandas.concat([placements.groupby(keys).mean().reset_index(), scalability])
//   scipy.interpolate.LinearNDInterpolator(points[keys].values, points[["step_time", "sync_time"]].values)(...)
TEST_CASE("interpolated step times match SciPy's linear interpolation") {
  struct Reference {
    const char* application;
    Placement placement;
    std::size_t local_bsz;
    StepTime time;
  };
  const std::vector<Reference> references = {
      {"cifar10", full(5), 100, {0.17808348567862256, 0.0937046695307681}},
      {"cifar10", Placement(7, 1), 50, {0.15335607214977864, 0.10178913132516959}},
      {"cifar10", full(10), 333, {0.31973398182400314, 0.060709191640218055}},
      {"ncf", {4, 4, 4, 4, 4, 2}, 1000, {0.03101407444035561, 0.022187162455805997}},
      {"ncf", full(16), 77, {0.0475117025061399, 0.039698351806671944}},
      {"yolov3", full(5), 5, {1.282597467303276, 0.8496731967926026}},
      {"yolov3", Placement(7, 3), 7, {1.3040887340903282, 0.896398868560791}},
      {"bert", full(16), 12, {2.231521874666214, 1.3427189025878905}},
      {"bert", Placement(6, 2), 9, {1.7535296032826104, 1.0599681905110678}},
      {"imagenet", full(12), 100, {0.6940219970310435, 0.1671540650872623}},
      {"deepspeech2", full(9), 33, {1.736764721332058, 0.6050796324206936}},
      // This placement was measured, so the reference is scipy.interpolate.interp1d over local_bsz.
      {"cifar10", {1, 3, 4, 2}, 77, {0.14697289466857905, 0.08117667006033438}}};
  for (const Reference& reference : references) {
    CAPTURE(reference.application);
    CAPTURE(reference.local_bsz);
    check_near(applications().at(reference.application)->step_times().at(reference.placement, reference.local_bsz),
               reference.time);
  }
}

TEST_CASE("on a measured placement, step times are linear between batch sizes and constant beyond") {
  const std::vector<StepTimes::PlacementRow> rows = {
      {{1}, 8, {2, 1}}, {{1}, 4, {1, 0}}, {{2, 1}, 4, {3, 1}}, {{1, 2}, 4, {5, 2}}};
  const StepTimes times(rows, {});
  CHECK(times.at(Placement{1}, 5) == StepTime{1.25, 0.25});
  CHECK(times.at(Placement{1}, 2) == StepTime{1, 0});
  CHECK(times.at(Placement{1}, 100) == StepTime{2, 1});
  CHECK(times.at(Placement{1, 2}, 4) == StepTime{4, 1.5});  // rows of one key are averaged
}

TEST_CASE("a linear function of nodes, replicas and batch size is reproduced exactly within the convex hull") {
  const auto time = [](double nodes, double replicas, double local_bsz) {
    return StepTime{0.1 * nodes + 0.02 * replicas + 0.003 * local_bsz, 0.01 * nodes + 0.002 * replicas};
  };
  std::vector<StepTimes::ScalabilityRow> rows;
  for (const int nodes : {1, 4, 8}) {
    for (const int replicas : {8, 16, 32}) {
      for (const int local_bsz : {10, 50, 100}) {
        rows.push_back({nodes, replicas, static_cast<double>(local_bsz), time(nodes, replicas, local_bsz)});
      }
    }
  }
  const StepTimes times(std::vector<StepTimes::PlacementRow>{{{1}, 10, time(1, 1, 10)}}, rows);
  for (int nodes = 1; nodes <= 8; ++nodes) {
    for (int each = (8 + nodes - 1) / nodes; each * nodes <= 32; ++each) {
      for (const std::size_t local_bsz : {10U, 33U, 50U, 99U, 100U}) {
        check_near(times.at(Placement(static_cast<std::size_t>(nodes), each), local_bsz),
                   time(nodes, each * nodes, static_cast<double>(local_bsz)));
      }
    }
  }
}

TEST_CASE("outside the convex hull, the times of the nearest measured numbers of nodes and replicas are used") {
  const StepTimes& times = applications().at("cifar10")->step_times();
  CHECK(times.at(full(40), 100) == times.at(full(16), 100));
  CHECK(times.at(Placement{9, 9}, 64).step > 0);
}

TEST_CASE("degenerate measurements still give a step time everywhere") {
  const std::vector<StepTimes::PlacementRow> one = {{{1}, 4, {1, 0.25}}};
  CHECK(StepTimes(one, {}).at(full(3), 9) == StepTime{1, 0.25});
  // With one replica per node, all points are in one plane.
  std::vector<StepTimes::PlacementRow> plane;
  for (const std::size_t nodes : {1U, 2U, 4U}) {
    for (const double local_bsz : {4.0, 8.0}) {
      plane.push_back({Placement(nodes, 1), local_bsz, {0.1 * static_cast<double>(nodes) + local_bsz, 0.05}});
    }
  }
  CHECK(StepTimes(plane, {}).at(Placement{1, 1, 1, 1, 1}, 6).step == doctest::Approx(0.4 + 6));
  CHECK(StepTimes(plane, {}).at(Placement{2}, 4).step == doctest::Approx(0.2 + 4));
}

TEST_CASE("concurrent queries return the same step times in all threads") {
  const Applications fresh = load_traces(osdi21() / "traces");
  const StepTimes& times = fresh.at("imagenet")->step_times();
  std::vector<std::vector<StepTime>> answers(4);
  {
    std::vector<std::jthread> threads;
    for (std::vector<StepTime>& mine : answers) {
      threads.emplace_back([&] {
        for (std::size_t nodes = 5; nodes <= 16; ++nodes) {
          for (std::size_t local_bsz = 20; local_bsz <= 200; local_bsz += 20) {
            mine.push_back(times.at(full(nodes), local_bsz));
          }
        }
      });
    }
  }
  for (const std::vector<StepTime>& mine : answers) CHECK(mine == answers.front());
}

}  // namespace
}  // namespace adaptdl::sched::step_times_test
