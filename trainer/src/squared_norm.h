// Squared norms of gradients, in one pass over the data and without a temporary where it lies in plain memory.
//
// On a CPU, elements are squared in the gradient's own precision and summed in double, in an order that does not depend
// on the number of threads: equal gradients have equal norms on every replica.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace adaptdl {

// By what Adam divides a gradient, elementwise: sqrt(exp_avg_sq) / correction + eps. An undefined exp_avg_sq stands
// for 1.
struct Preconditioner {
  at::Tensor exp_avg_sq;
  double correction = 1;
  double eps = 0;
};

// Whether none of them is NaN or infinite.
bool all_finite(const std::vector<double>& values);

// A gradient of a parameter group. It may be sparse.
struct GroupGradient {
  std::size_t group = 0;
  at::Tensor gradient;
  Preconditioner preconditioner;
};

// Sums by parameter group, in double. On a GPU, where handing over an operation takes longer than computing most
// gradients' norms, many gradients are added by few operations, and the norm of all of them is rounded to single
// precision.
class GroupSums {
 public:
  GroupSums(std::size_t groups, std::size_t sums, at::Device device);
  void clear();

  // Adds |gradient / preconditioner|^2 to the group's first sum.
  void add_squared_norm(const GroupGradient& gradient);
  void add_squared_norms(const std::vector<GroupGradient>& gradients);
  // Adds |a|^2, |b|^2 and |a + b|^2 to the group's first three sums, for each gradient a and its `previous` b, both
  // divided by the preconditioner; then overwrites the latter with the former. REQUIRES equal shapes.
  void add_pairs(const std::vector<GroupGradient>& gradients, const std::vector<at::Tensor>& previous);

  // (groups, sums): to be all-reduced in place.
  at::Tensor& tensor();
  // Waits for the device. values()[group * sums + sum].
  std::vector<double> values();

 private:
  void add(std::size_t group, const std::vector<at::Tensor>& values);
  void add_norms(std::size_t group, const std::vector<at::Tensor>& norms, std::size_t kinds);
  bool add_plain(const GroupGradient& gradient);
  bool add_plain_pair(const GroupGradient& gradient, const at::Tensor& previous);
  void flush();

  at::Tensor sums_;
  // By group and GPU: not added to the group's first sum yet.
  std::map<std::pair<std::size_t, std::int64_t>, std::vector<at::Tensor>> norms_;
};

}  // namespace adaptdl
