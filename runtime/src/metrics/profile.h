// Mean step times by (nodes, replicas, atomic batch size), robust against a few outliers.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "adaptdl/goodput.h"

namespace adaptdl::metrics {

// The times of one kind of step. The first steps, some of which warm up caches, are compared with their median, and all
// later steps with the mean so far: a step that takes more than three times this reference value is counted as three
// times the reference value. Older times count less: the weight of all earlier steps is halved whenever the count
// reaches 1000.
class Series {
 public:
  struct Sums {
    double count = 0;
    double seconds = 0;
    double sync = 0;  // the part of `seconds` spent waiting for synchronization
  };

  // REQUIRES 0 <= sync <= seconds, both finite.
  void add(double seconds, double sync);
  Sums sums() const;

  nlohmann::json to_json() const;
  // Throws nlohmann::json::exception on anything that to_json does not write.
  static Series from_json(const nlohmann::json& value);

 private:
  Sums sums_;                                 // sums of all steps, once there are enough steps
  std::vector<std::array<double, 2>> first_;  // {seconds, sync} of each step, until there are enough
};

class Profile {
 public:
  // Records a step in the way that metrics::record_step specifies.
  void record(int nodes, int replicas, std::size_t atomic_bsz, double seconds, std::optional<double> sync);

  // Returns the mean step times of all configurations in which a step with synchronization was timed, as input for the
  // fit. After its waiting time is subtracted, such a step also provides an observation of a forward and backward pass.
  std::vector<goodput::Observation> observations() const;
  // Returns the maximum number of replicas with which a step was timed, or 0 if none was.
  int max_replicas() const;

  nlohmann::json to_json() const;
  static Profile from_json(const nlohmann::json& value);

 private:
  struct Key {
    int nodes, replicas;
    std::size_t atomic_bsz;
    auto operator<=>(const Key&) const = default;
  };
  struct Times {
    Series accum, optim;
  };
  std::map<Key, Times> times_;
};

}  // namespace adaptdl::metrics
