// A Delaunay tetrahedralisation of points in three dimensions, by Qhull.
//
// Threading: const after construction; to be used from any thread.
#pragma once

#include <array>
#include <optional>
#include <vector>

namespace adaptdl::sched {

using Point3 = std::array<double, 3>;

class Delaunay {
 public:
  // Weights of a point's neighbours that make it up: the corners of a tetrahedron that holds it.
  struct Corners {
    std::array<int, 4> points;  // by index
    std::array<double, 4> weights;
  };

  // Points that span no volume have no tetrahedra. Throws Error if Qhull fails on points that do.
  explicit Delaunay(const std::vector<Point3>& points);

  // None outside of the convex hull.
  std::optional<Corners> locate(const Point3& point) const;

 private:
  struct Tetrahedron {
    std::array<int, 4> points;
    Point3 origin;                  // of the last corner
    std::array<Point3, 3> inverse;  // rows that map an offset from the origin to the weights of the other corners
    Point3 low, high;               // the box around it
  };
  void add(const std::vector<Point3>& points, const std::array<int, 4>& corners);

  std::vector<Tetrahedron> tetrahedra_;
};

}  // namespace adaptdl::sched
