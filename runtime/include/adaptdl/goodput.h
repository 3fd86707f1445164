// Goodput: how much training progress a job makes a second, as a function of its resources and batch size.
//
//   goodput = throughput x efficiency
//
// Throughput is in samples a second; efficiency is the progress of a sample, relative to one at the initial batch size.
// The model is that of Pollux (Qiao et al., OSDI 2021, section 3). A step takes, on N nodes and K replicas with a local
// (atomic) batch size of m samples and s accumulation steps,
//
//   T_grad  = alpha_c + beta_c m                       forward and backward pass of one atomic batch
//   T_sync  = 0                                        one replica
//           = alpha_r + beta_r max(K - 2, 0)           several on one node
//           = alpha_n + beta_n max(K - 2, 0)           several nodes
//   T_optim = (T_grad^gamma + T_sync^gamma)^(1/gamma)  the last pass overlaps with the synchronisation
//   T_step  = s T_grad + T_optim
//
// and the efficiency of the total batch size M, from the gradient noise scale (McCandlish et al., 2018), is
//
//   gain(r) = (var + sqr) / (var / r + sqr),  r = M / init_batch_size;   efficiency = gain(r) / r
//
// In the formulas 0 is 1e-8, so that logarithms exist. Times are in seconds.
//
// Threading: everything here is const or free of state; to be used from any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "adaptdl/error.h"

namespace adaptdl::goodput {

// The seven parameters of the step time.
struct PerfParams {
  double alpha_c = 0;  // forward and backward pass: seconds
  double beta_c = 0;   // forward and backward pass: seconds per sample
  double alpha_n = 0;  // synchronisation between nodes: seconds
  double beta_n = 0;   // synchronisation between nodes: seconds per replica beyond two
  double alpha_r = 0;  // synchronisation within a node: seconds
  double beta_r = 0;   // synchronisation within a node: seconds per replica beyond two
  double gamma = 1;    // overlap of computation and synchronisation, 1 to 10: 1 none, 10 nearly all
};

// Statistics of the gradient at the initial batch size.
struct GradParams {
  double sqr = 0;  // squared norm of its expectation
  double var = 0;  // trace of its covariance
};

// In place of those of a job whose batch size is fixed: with them each sample is worth the same.
inline constexpr GradParams kUnmeasuredGrad{.sqr = 0, .var = 1};

// Which batch sizes `optimize` may choose.
struct Limits {
  std::optional<std::size_t> max_batch_size;  // total; default: the initial batch size
  std::optional<std::size_t> min_local_bsz;   // of an atomic batch; default 1
  std::optional<std::size_t> max_local_bsz;   // default: max_batch_size
  bool accumulation = false;                  // whether several atomic batches may make up a step
};

// What `optimize` chooses, and its goodput.
struct Configuration {
  double goodput = 0;          // samples a second, weighted by their efficiency
  std::size_t atomic_bsz = 0;  // samples of a batch on each replica
  int accum_steps = 0;         // batches before the one with which the optimizer steps
};

// The goodput of a job for any resources and batch size.
class GoodputFunction {
 public:
  // REQUIRES init_batch_size >= 1.
  GoodputFunction(const PerfParams& perf, const GradParams& grad, std::size_t init_batch_size) noexcept;

  // Samples a second. REQUIRES 1 <= nodes <= replicas, atomic_bsz >= 1, accum_steps >= 0, here and below.
  double throughput(int nodes, int replicas, double atomic_bsz, int accum_steps) const noexcept;
  // Progress of a sample at this total batch size, relative to one at the initial batch size. In (0, 1] from the
  // initial batch size on.
  double efficiency(double batch_size) const noexcept;
  // throughput x efficiency.
  double evaluate(int nodes, int replicas, double atomic_bsz, int accum_steps) const noexcept;

  // The best of 50 total batch sizes, in geometric steps from the least to the largest one, that split into atomic
  // batches within the bounds. The least is the initial batch size, or the smallest that the replicas make up where
  // min_local_bsz times their number is more (and then it may exceed the largest).
  // One replica never gets a larger batch than the initial one in a single piece, for the noise of a gradient cannot be
  // told from one sample of it: with accumulation it takes at least two pieces, without it keeps the initial batch
  // size. Where no candidate is within the bounds, goodput is 0, and the sizes are those that the least total batch
  // size would take. Throws UsageError, naming the limit, if the limits contradict each other or the initial batch
  // size: the largest total is below the initial or the least local one, or the largest local below the least local
  // one.
  Configuration optimize(int nodes, int replicas, const Limits& limits) const;
  // The same for many configurations at once: element i is that of (nodes[i], replicas[i]). REQUIRES equal sizes.
  std::vector<Configuration> optimize(std::span<const int> nodes, std::span<const int> replicas,
                                      const Limits& limits) const;

  // As given to the constructor.
  const PerfParams& perf_params() const noexcept { return perf_; }
  const GradParams& grad_params() const noexcept { return grad_; }
  std::size_t init_batch_size() const noexcept { return init_batch_size_; }

 private:
  PerfParams perf_;
  GradParams grad_;
  std::size_t init_batch_size_;
};

// What was measured at one (nodes, replicas, atomic batch size).
struct Observation {
  int nodes = 1;               // nodes in use
  int replicas = 1;            // on all of them together
  std::size_t atomic_bsz = 1;  // samples of a batch on each replica
  double accum_step_time = 0;  // mean seconds of a forward and backward pass alone
  double optim_step_time = 0;  // mean seconds of one with the synchronisation
};

// Fits the parameters to what was observed: the least sum of the root mean squared logarithmic errors of both times,
// plus a regularisation towards a small gamma and a small retrogression (beta over alpha of each link), with gamma in
// [1, 10] and the others at least 1e-8.
//
// What the observations cannot tell is fixed optimistically: no synchronisation cost where none was seen (but between
// nodes at least 1.1 times that within a node), no retrogression up to two replicas, and alpha_c at half the time where
// only one batch size was seen. And of parameters that explain the observations about as well, the more plausible are
// taken: a link within a node that is no slower than one between nodes, and no cost of a link that was seen in at most
// two configurations. docs/goodput.md has the formulas.
//
// The same observations in the same order give the same parameters. Takes about a millisecond for 50 observations.
// Throws UsageError without observations or on times that are not positive and finite.
PerfParams fit_perf_params(std::span<const Observation> observations);

}  // namespace adaptdl::goodput
