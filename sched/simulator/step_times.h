// How long a step takes, from measurements at some placements and batch sizes: exactly what was measured where it was,
// else linear between.
//
// On a placement that was measured: linear over the local batch size, held beyond the measured ones. On another: linear
// over (nodes, replicas, local batch size) between the points of a Delaunay tetrahedralisation of all that was
// measured; outside of their convex hull, or where they span no volume, as on the measured (nodes, replicas) that is
// nearest (each coordinate counted relative to its range; of two as near, the larger).
//
// A placement is the number of replicas on each node, in the order of ranks. Rotations of it are one: the ring of an
// all-reduce has no beginning.
//
// Threading: to be used from any thread; what was asked once is remembered under a lock.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace adaptdl::sched {

// Seconds. `sync` is the part of `step` in which it waits for other replicas.
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
  struct ScalabilityRow {  // of an unknown placement
    int nodes = 0;
    int replicas = 0;
    double local_bsz = 0;
    StepTime time;
  };

  // REQUIRES at least one placement; every number positive, and sync at most step. Rows that agree in all but the time
  // are averaged.
  StepTimes(std::span<const PlacementRow> placements, std::span<const ScalabilityRow> scalability);
  ~StepTimes();
  StepTimes(StepTimes&&) noexcept;
  StepTimes& operator=(StepTimes&&) noexcept;

  // REQUIRES a placement without zeros, of at least one node, and local_bsz >= 1.
  StepTime at(std::span<const int> placement, std::size_t local_bsz) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace adaptdl::sched
