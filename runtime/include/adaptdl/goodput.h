// Goodput: the training progress of a job per second, as a function of its resources and batch size.
//
//   goodput = throughput x efficiency
//
// Throughput is in samples per second; efficiency is the progress per sample, relative to the initial batch size. The
// model comes from Pollux (Qiao et al., OSDI 2021, section 3). On N nodes and K replicas with a local (atomic) batch
// size of m samples and s accumulation steps, the time of a step is
//
//   T_grad  = alpha_c + beta_c m                       forward and backward pass of one atomic batch
//   T_sync  = 0                                        one replica
//           = alpha_r + beta_r max(K - 2, 0)           several replicas on one node
//           = alpha_n + beta_n max(K - 2, 0)           several nodes
//   T_optim = (T_grad^gamma + T_sync^gamma)^(1/gamma)  the last pass overlaps with the synchronization
//   T_step  = s T_grad + T_optim
//
// and the efficiency of the total batch size M, from the gradient noise scale (McCandlish et al., 2018), is
//
//   gain(r) = (var + sqr) / (var / r + sqr),  r = M / init_batch_size;   efficiency = gain(r) / r
//
// In these formulas, 1e-8 replaces 0, so that logarithms are defined. Times are in seconds.
//
// Threading: all functions may be called from any thread.
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
  double alpha_n = 0;  // synchronization between nodes: seconds
  double beta_n = 0;   // synchronization between nodes: seconds per replica beyond two
  double alpha_r = 0;  // synchronization within a node: seconds
  double beta_r = 0;   // synchronization within a node: seconds per replica beyond two
  double gamma = 1;    // overlap of computation and synchronization, from 1 (none) to 10 (nearly complete)
};

// Statistics of the gradient at the initial batch size.
struct GradParams {
  double sqr = 0;  // squared norm of the gradient's expectation
  double var = 0;  // trace of the gradient's covariance
};

// The statistics to use for a job with a fixed batch size; they imply that every sample contributes the same progress.
inline constexpr GradParams kUnmeasuredGrad{.sqr = 0, .var = 1};

// The batch sizes that `optimize` may choose.
struct Limits {
  std::optional<std::size_t> max_batch_size;  // total across all replicas; default: the initial batch size
  std::optional<std::size_t> min_local_bsz;   // samples in an atomic batch; default: 1
  std::optional<std::size_t> max_local_bsz;   // default: max_batch_size
  bool accumulation = false;                  // whether several atomic batches may make up a step
};

// The configuration that `optimize` chooses, and its goodput.
struct Configuration {
  double goodput = 0;          // samples per second, weighted by their efficiency
  std::size_t atomic_bsz = 0;  // samples per batch on each replica
  int accum_steps = 0;         // atomic batches in a step, not counting the last one
};

// A job's goodput for any resources and batch size.
class GoodputFunction {
 public:
  // REQUIRES init_batch_size >= 1.
  GoodputFunction(const PerfParams& perf, const GradParams& grad, std::size_t init_batch_size) noexcept;

  // Returns samples per second. REQUIRES 1 <= nodes <= replicas, atomic_bsz >= 1, accum_steps >= 0, here and below.
  double throughput(int nodes, int replicas, double atomic_bsz, int accum_steps) const noexcept;
  // Returns the progress per sample at this total batch size, relative to the initial batch size. It is in (0, 1] for
  // batch sizes that are not below the initial one.
  double efficiency(double batch_size) const noexcept;
  // Returns throughput x efficiency.
  double evaluate(int nodes, int replicas, double atomic_bsz, int accum_steps) const noexcept;

  // Evaluates 50 total batch sizes, in geometric steps from the smallest to the largest, and returns the best one whose
  // atomic batches are within the limits. The smallest is the initial batch size, or min_local_bsz times the number of
  // replicas if that is larger (the smallest may then even exceed the largest).
  // A single replica never processes more than the initial batch size as one atomic batch, because the gradient noise
  // cannot be estimated from a single gradient: with accumulation, a larger batch has at least two atomic batches;
  // without it, the batch size remains the initial one. If no candidate is within the limits, the result has goodput 0,
  // and its other members are those of the smallest total batch size. Throws UsageError, naming the limit, if the
  // largest total batch size is below the initial one or below min_local_bsz, or if max_local_bsz is below
  // min_local_bsz.
  Configuration optimize(int nodes, int replicas, const Limits& limits) const;
  // The same for several allocations: element i is the result for (nodes[i], replicas[i]). REQUIRES equal sizes.
  std::vector<Configuration> optimize(std::span<const int> nodes, std::span<const int> replicas,
                                      const Limits& limits) const;

  // These functions return what was passed to the constructor.
  const PerfParams& perf_params() const noexcept { return perf_; }
  const GradParams& grad_params() const noexcept { return grad_; }
  std::size_t init_batch_size() const noexcept { return init_batch_size_; }

 private:
  PerfParams perf_;
  GradParams grad_;
  std::size_t init_batch_size_;
};

// The step times measured for one combination of nodes, replicas and atomic batch size.
struct Observation {
  int nodes = 1;               // nodes in use
  int replicas = 1;            // total on these nodes
  std::size_t atomic_bsz = 1;  // samples per batch on each replica
  double accum_step_time = 0;  // mean duration of a forward and backward pass without synchronization, in seconds
  double optim_step_time = 0;  // mean duration of a forward and backward pass with synchronization, in seconds
};

// Fits the parameters to the observations. The fit minimizes the sum of the root mean squared logarithmic errors of
// both times, plus a regularization toward a small gamma and a small retrogression (each link's beta divided by its
// alpha), with gamma in [1, 10] and all other parameters at least 1e-8.
//
// Parameters that the observations do not determine are fixed optimistically: a link that was not observed costs
// nothing (but a link between nodes costs at least 1.1 times as much as one within a node), there is no retrogression
// if no more than two replicas were observed, and alpha_c is half of the mean time if only one batch size was observed.
// Among parameters that explain the observations about equally well, the more plausible ones are chosen: a link within
// a node is not slower than one between nodes, and a link that was observed in at most two configurations costs
// nothing. docs/goodput.md contains the formulas.
//
// The same observations in the same order yield the same parameters. A fit of 50 observations takes about a
// millisecond. Throws UsageError if there are no observations, if a size is invalid, or if a time is not positive and
// finite.
PerfParams fit_perf_params(std::span<const Observation> observations);

}  // namespace adaptdl::goodput
