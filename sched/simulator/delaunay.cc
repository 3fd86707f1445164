#include "simulator/delaunay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "adaptdl/error.h"
#include "base/embedded_library.h"
#include "simulator/tetrahedra.h"

namespace adaptdl::sched {
namespace {

// A point with a weight this far below zero is still considered inside, so that a point on a face does not fall between
// two tetrahedra.
constexpr double kTolerance = 1e-10;

Point3 minus(const Point3& a, const Point3& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Point3 cross(const Point3& a, const Point3& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}
double dot(const Point3& a, const Point3& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

bool flat(const std::vector<Point3>& points) {
  // The farthest points span a line, then a plane, and then a volume, which is compared with the cube of the line's
  // length.
  const auto farthest = [&](auto measure) { return std::ranges::max(points, {}, measure); };
  const Point3 origin = points.front();
  const Point3 line = minus(farthest([&](const Point3& p) { return dot(minus(p, origin), minus(p, origin)); }), origin);
  const auto off_line = [&](const Point3& p) {
    const Point3 normal = cross(line, minus(p, origin));
    return dot(normal, normal);
  };
  const Point3 normal = cross(line, minus(farthest(off_line), origin));
  const auto off_plane = [&](const Point3& p) { return std::abs(dot(normal, minus(p, origin))); };
  const double volume = off_plane(farthest(off_plane));
  return volume <= 1e-9 * dot(line, line) * std::sqrt(dot(line, line));
}

}  // namespace

Delaunay::Delaunay(const std::vector<Point3>& points) {
  if (points.size() < 4 || flat(points)) return;
  static const auto find_tetrahedra = reinterpret_cast<decltype(&adaptdl_find_tetrahedra)>(load_function(
      {kTetrahedraLibrary, "traces of step times", "Qhull (on Debian and Ubuntu: apt-get install libqhull-r8.0)"},
      "adaptdl_find_tetrahedra"));
  std::vector<std::array<int, 4>> tetrahedra;
  const int exit_code = find_tetrahedra(points, tetrahedra);
  if (exit_code == kFlat) return;
  if (exit_code != 0) {
    throw Error(
        fmt::format("Qhull cannot triangulate the measured step times (exit code {}); use at most a few "
                    "thousand measurements, and no extreme batch sizes",
                    exit_code));
  }
  for (const std::array<int, 4>& corners : tetrahedra) add(points, corners);
}

void Delaunay::add(const std::vector<Point3>& points, const std::array<int, 4>& corners) {
  const auto point = [&](std::size_t i) { return points[static_cast<std::size_t>(corners[i])]; };
  const Point3 origin = point(3);
  const Point3 a = minus(point(0), origin), b = minus(point(1), origin), c = minus(point(2), origin);
  const double volume = dot(a, cross(b, c));
  const double size = std::sqrt(dot(a, a) * dot(b, b) * dot(c, c));
  // Cospherical points can produce tetrahedra with coplanar corners. Such tetrahedra contain nothing that their
  // neighbors do not contain.
  if (!(std::abs(volume) > 1e-12 * size)) return;
  const auto scaled = [&](const Point3& v) { return Point3{v[0] / volume, v[1] / volume, v[2] / volume}; };
  Tetrahedron result{corners, origin, {scaled(cross(b, c)), scaled(cross(c, a)), scaled(cross(a, b))}, origin, origin};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      result.low[axis] = std::min(result.low[axis], point(i)[axis]);
      result.high[axis] = std::max(result.high[axis], point(i)[axis]);
    }
  }
  tetrahedra_.push_back(result);
}

std::optional<Delaunay::Corners> Delaunay::locate(const Point3& point) const {
  for (const Tetrahedron& tetrahedron : tetrahedra_) {
    bool in_box = true;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      in_box = in_box && tetrahedron.low[axis] <= point[axis] && point[axis] <= tetrahedron.high[axis];
    }
    if (!in_box) continue;
    const Point3 offset = minus(point, tetrahedron.origin);
    std::array<double, 4> weights{};
    weights[3] = 1;
    for (std::size_t i = 0; i < 3; ++i) {
      weights[i] = dot(tetrahedron.inverse[i], offset);
      weights[3] -= weights[i];
    }
    if (std::ranges::min(weights) >= -kTolerance) return Corners{tetrahedron.points, weights};
  }
  return std::nullopt;
}

}  // namespace adaptdl::sched
