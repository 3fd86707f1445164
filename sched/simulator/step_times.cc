#include "simulator/step_times.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <utility>

#include "simulator/delaunay.h"

namespace adaptdl::sched {
namespace {

// Step times by local batch size.
using Curve = std::map<double, StepTime>;

StepTime mix(const StepTime& a, const StepTime& b, double weight_of_b) {
  return {a.step + weight_of_b * (b.step - a.step), a.sync + weight_of_b * (b.sync - a.sync)};
}

// Interpolates between two batch sizes. Beyond the first and the last, the time is constant.
StepTime evaluate(const Curve& curve, double local_bsz) {
  const auto upper = curve.lower_bound(local_bsz);
  if (upper == curve.end()) return std::prev(upper)->second;
  if (upper->first == local_bsz || upper == curve.begin()) return upper->second;
  const auto lower = std::prev(upper);
  return mix(lower->second, upper->second, (local_bsz - lower->first) / (upper->first - lower->first));
}

// Returns the lexicographically smallest rotation.
std::vector<int> canonical(std::span<const int> placement) {
  std::vector<int> rotation(placement.begin(), placement.end()), smallest = rotation;
  for (std::size_t i = 1; i < rotation.size(); ++i) {
    std::rotate(rotation.begin(), rotation.begin() + 1, rotation.end());
    if (rotation < smallest) smallest = rotation;
  }
  return smallest;
}

using Shape = std::pair<int, int>;  // nodes, replicas
using Query = std::pair<Shape, double>;

Query query_of(const StepTimes::PlacementRow& row) {
  const int replicas = std::accumulate(row.placement.begin(), row.placement.end(), 0);
  return {{static_cast<int>(row.placement.size()), replicas}, row.local_bsz};
}

// The mean measurements for each key, in the order in which the keys first occurred.
template <class Key>
class Means {
 public:
  void add(const Key& key, const StepTime& time) {
    const auto [found, fresh] = index_.emplace(key, sums_.size());
    if (fresh) sums_.push_back({key, {}, 0});
    Sum& sum = sums_[found->second];
    sum.time = {sum.time.step + time.step, sum.time.sync + time.sync};
    ++sum.count;
  }
  template <class Visitor>
  void visit(Visitor visitor) const {
    for (const Sum& sum : sums_) visitor(sum.key, StepTime{sum.time.step / sum.count, sum.time.sync / sum.count});
  }

 private:
  struct Sum {
    Key key;
    StepTime time;
    int count;
  };
  std::map<Key, std::size_t> index_;
  std::vector<Sum> sums_;
};

// All measurements, with rows that have the same key averaged.
struct Measurements {
  Measurements(std::span<const StepTimes::PlacementRow> placements,
               std::span<const StepTimes::ScalabilityRow> scalability) {
    // Which tetrahedra Qhull builds from cospherical points depends on the order of the points. This code uses the same
    // order as the paper's artifact: placements are sorted, and the other rows are in file order.
    std::vector<StepTimes::PlacementRow> sorted(placements.begin(), placements.end());
    std::ranges::stable_sort(sorted, {}, query_of);
    Means<std::pair<std::vector<int>, double>> placement_means;
    Means<Query> shape_means;
    for (const StepTimes::PlacementRow& row : sorted) {
      placement_means.add({canonical(row.placement), row.local_bsz}, row.time);
      shape_means.add(query_of(row), row.time);
    }
    for (const StepTimes::ScalabilityRow& row : scalability) {
      shape_means.add({{row.nodes, row.replicas}, row.local_bsz}, row.time);
    }
    placement_means.visit([&](const auto& key, const StepTime& time) { by_placement[key.first][key.second] = time; });
    shape_means.visit([&](const Query& key, const StepTime& time) {
      by_shape[key.first][key.second] = time;
      points.push_back({static_cast<double>(key.first.first), static_cast<double>(key.first.second), key.second});
      values.push_back(time);
    });
  }

  std::map<std::vector<int>, Curve> by_placement;
  std::map<Shape, Curve> by_shape;
  std::vector<Point3> points;  // nodes, replicas, local batch size
  std::vector<StepTime> values;
};

}  // namespace

struct StepTimes::Implementation {
  explicit Implementation(Measurements all) : measured(std::move(all)), delaunay(measured.points) {}

  StepTime at_shape(const Shape& shape, double local_bsz) const;
  const Curve& nearest(const Shape& shape) const;

  Measurements measured;
  Delaunay delaunay;
  mutable std::shared_mutex mutex;
  mutable std::map<Query, StepTime> memory;  // protected by the mutex
};

StepTime StepTimes::Implementation::at_shape(const Shape& shape, double local_bsz) const {
  const auto corners =
      delaunay.locate({static_cast<double>(shape.first), static_cast<double>(shape.second), local_bsz});
  if (!corners) return evaluate(nearest(shape), local_bsz);
  StepTime result;
  for (std::size_t i = 0; i < corners->points.size(); ++i) {
    const StepTime& value = measured.values[static_cast<std::size_t>(corners->points[i])];
    result.step += corners->weights[i] * value.step;
    result.sync += corners->weights[i] * value.sync;
  }
  return result;
}

const Curve& StepTimes::Implementation::nearest(const Shape& shape) const {
  const auto range = [&](auto member) {
    const auto [smallest, largest] =
        std::ranges::minmax_element(measured.by_shape, {}, [&](const auto& entry) { return entry.first.*member; });
    return std::max<double>(largest->first.*member - smallest->first.*member, 1);
  };
  const double nodes = range(&Shape::first), replicas = range(&Shape::second);
  const Curve* best = nullptr;
  double min_distance = std::numeric_limits<double>::infinity();
  for (const auto& [measured_shape, curve] : measured.by_shape) {
    const double distance =
        std::hypot((measured_shape.first - shape.first) / nodes, (measured_shape.second - shape.second) / replicas);
    if (distance <= min_distance) {
      min_distance = distance;
      best = &curve;
    }
  }
  return *best;
}

StepTimes::StepTimes(std::span<const PlacementRow> placements, std::span<const ScalabilityRow> scalability)
    : implementation_(std::make_unique<Implementation>(Measurements(placements, scalability))) {}
StepTimes::~StepTimes() = default;
StepTimes::StepTimes(StepTimes&&) noexcept = default;
StepTimes& StepTimes::operator=(StepTimes&&) noexcept = default;

StepTime StepTimes::at(std::span<const int> placement, std::size_t local_bsz) const {
  const auto batch = static_cast<double>(local_bsz);
  const auto& by_placement = implementation_->measured.by_placement;
  if (const auto curve = by_placement.find(canonical(placement)); curve != by_placement.end()) {
    return evaluate(curve->second, batch);
  }
  const int replicas = std::accumulate(placement.begin(), placement.end(), 0);
  const Query query{{static_cast<int>(placement.size()), replicas}, batch};
  {
    const std::shared_lock lock(implementation_->mutex);
    if (const auto known = implementation_->memory.find(query); known != implementation_->memory.end()) {
      return known->second;
    }
  }
  const StepTime time = implementation_->at_shape(query.first, batch);
  const std::unique_lock lock(implementation_->mutex);
  implementation_->memory.emplace(query, time);
  return time;
}

}  // namespace adaptdl::sched
