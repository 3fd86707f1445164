// A Delaunay tetrahedralization of points in three dimensions, computed by Qhull.
//
// Threading: a Delaunay is const after construction and can be used from any thread.
#pragma once

#include <array>
#include <optional>
#include <vector>

namespace adaptdl::sched {

using Point3 = std::array<double, 3>;

class Delaunay {
 public:
  // The corners of a tetrahedron that contains a point, and the weights with which the corners add up to the point.
  struct Corners {
    std::array<int, 4> points;  // indices into the points
    std::array<double, 4> weights;
  };

  // If the points do not span a volume, there are no tetrahedra. Otherwise, throws Error if Qhull fails or is not
  // installed.
  explicit Delaunay(const std::vector<Point3>& points);

  // Returns nullopt if the point is outside the convex hull.
  std::optional<Corners> locate(const Point3& point) const;

 private:
  struct Tetrahedron {
    std::array<int, 4> points;
    Point3 origin;                  // the last corner
    std::array<Point3, 3> inverse;  // rows that map an offset from the origin to the weights of the other corners
    Point3 low, high;               // the bounding box
  };
  void add(const std::vector<Point3>& points, const std::array<int, 4>& corners);

  std::vector<Tetrahedron> tetrahedra_;
};

}  // namespace adaptdl::sched
