// Squared norms of gradients, in one pass over the data and without a temporary where it lies in plain memory.
//
// Elements are squared in the gradient's own precision and summed in double, in an order that does not depend on the
// number of threads: equal gradients have equal norms on every replica.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace adaptdl::torch {

// By what Adam divides a gradient, elementwise: sqrt(exp_avg_sq) / correction + eps. An undefined exp_avg_sq stands for 1.
struct Preconditioner {
  at::Tensor exp_avg_sq;
  double correction = 1;
  double eps = 0;
};

// Whether none of them is NaN or infinite.
bool all_finite(const std::vector<double>& values);

// Sums by parameter group, in double, on the device of the gradients.
class GroupSums {
 public:
  GroupSums(std::size_t groups, std::size_t sums, at::Device device);
  void clear();

  // Adds |gradient / preconditioner|^2 to the group's first sum. The gradient may be sparse.
  void add_squared_norm(std::size_t group, const at::Tensor& gradient, const Preconditioner& preconditioner);
  // Adds the squared norms of two gradients and their inner product to the group's first three sums, and overwrites
  // `previous` with `gradient`. REQUIRES equal shapes.
  void add_pair(std::size_t group, const at::Tensor& gradient, at::Tensor& previous,
                const Preconditioner& preconditioner);

  // (groups, sums): to be all-reduced in place.
  at::Tensor& tensor() noexcept { return sums_; }
  // Waits for the device. values()[group * sums + sum].
  std::vector<double> values() const;

 private:
  void add(std::size_t group, std::size_t sum, const at::Tensor& value);
  at::Tensor sums_;
};

}  // namespace adaptdl::torch
