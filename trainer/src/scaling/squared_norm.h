// Computes squared norms of gradients in one pass over the data, without temporaries for dense floats on a CPU.
//
// On a CPU, elements are squared in the gradient's own precision (at least single) and summed in double precision, in
// an order that does not depend on the number of threads. Equal gradients therefore have equal norms on every replica.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace adaptdl {

// Adam's elementwise divisor of a gradient: sqrt(exp_avg_sq) / correction + eps, or 1 if exp_avg_sq is undefined.
struct Preconditioner {
  at::Tensor exp_avg_sq;
  double correction = 1;
  double eps = 0;
};

// Returns whether no value is NaN or infinite.
bool all_finite(const std::vector<double>& values);

// Number of sums per parameter group that GroupSums::add_pairs requires.
inline constexpr std::size_t kPairSums = 3;
// Returns the first sum of each group. `sums` contains kPairSums sums for each group.
std::vector<double> first_sums(const std::vector<double>& sums);

// A gradient of a parameter group. It may be sparse.
struct GroupGradient {
  std::size_t group = 0;
  at::Tensor gradient;
  Preconditioner preconditioner;
};

// Sums by parameter group, in double precision. On a GPU, launching an operation takes longer than computing the norm
// of most gradients. Many gradients are therefore added with few operations, and their common norm is rounded to single
// precision.
class GroupSums {
 public:
  GroupSums(std::size_t groups, std::size_t sums, at::Device device);
  void clear();

  // Adds |gradient / preconditioner|^2 to the group's first sum.
  void add_squared_norm(const GroupGradient& gradient);
  void add_squared_norms(const std::vector<GroupGradient>& gradients);
  // Adds |a|^2, |b|^2 and |a + b|^2 to the group's first three sums, for each gradient a and its previous gradient b,
  // both divided by the preconditioner. Then copies a to b. REQUIRES equal shapes.
  void add_pairs(const std::vector<GroupGradient>& gradients, const std::vector<at::Tensor>& previous);

  // Returns the sums, of shape (groups, sums). They may be all-reduced in place.
  at::Tensor& tensor();
  // Returns the sums; sum j of group i is at index i * sums + j. Waits for the device.
  std::vector<double> values();

 private:
  void add(std::size_t group, const std::vector<at::Tensor>& values);
  void add_norms(std::size_t group, const std::vector<at::Tensor>& norms, std::size_t kinds);
  bool add_plain(const GroupGradient& gradient);
  bool add_plain_pair(const GroupGradient& gradient, const at::Tensor& previous);
  void flush();

  at::Tensor sums_;
  // Norms by group and GPU that have not been added to the group's first sum yet.
  std::map<std::pair<std::size_t, std::int64_t>, std::vector<at::Tensor>> norms_;
};

}  // namespace adaptdl
