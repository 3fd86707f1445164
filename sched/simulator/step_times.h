// How long a step takes, based on measurements for some placements and batch sizes: exactly the measured time if there
// is one, or else an interpolation.
//
// On a measured placement, times are linear in the local batch size, and constant beyond the measured batch sizes. On
// other placements, they are linear in (nodes, replicas, local batch size) between the points of a Delaunay
// tetrahedralization of all measurements. Outside the convex hull of the measurements, or if they do not span a volume,
// the times of the nearest measured (nodes, replicas) are used; for the distance, each coordinate is divided by its
// range. If two are equally near, the larger one is used.
//
// A placement is the number of replicas on each node, in the order of ranks. Its rotations are treated as the same
// placement, because the ring of an all-reduce has no beginning.
//
// Threading: an object may be used from any thread; a lock protects the cache.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace adaptdl::sched {

// Both times are in seconds. `sync` is the part of `step` in which a replica waits for others.
struct StepTime {
  double step = 0;
  double sync = 0;
  bool operator==(const StepTime&) const = default;
};

class StepTimes {
 public:
  struct PlacementRow {
    std::vector<int> placement;
    double local_bsz = 0;
    StepTime time;
  };
  struct ScalabilityRow {  // a measurement whose placement is unknown
    int nodes = 0;
    int replicas = 0;
    double local_bsz = 0;
    StepTime time;
  };

  // Rows that differ only in their time are averaged. REQUIRES at least one placement, positive numbers, and
  // 0 <= sync <= step.
  StepTimes(std::span<const PlacementRow> placements, std::span<const ScalabilityRow> scalability);
  ~StepTimes();
  StepTimes(StepTimes&&) noexcept;
  StepTimes& operator=(StepTimes&&) noexcept;

  // REQUIRES a placement of at least one node and without zeros, and local_bsz >= 1.
  StepTime at(std::span<const int> placement, std::size_t local_bsz) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace adaptdl::sched
