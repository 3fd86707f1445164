// Which batch sizes a data loader may use, and which one it is using.
//
// The program gives the initial batch size and, if it may change, its limits. BatchSizeChoice, in the loader's state,
// holds the size that rank 0 chose within them. The loop adopts this size only where it divides its data into batches.
//
// Threading: only the training thread may use the class.
#pragma once

#include <cstddef>
#include <optional>

#include "adaptdl/torch/local_bsz_bounds.h"
#include "loop/batch_size_choice.h"

namespace adaptdl::internal {

class LoopState;

class BatchSizePolicy {
 public:
  // `batch_size`: number of samples per step across all replicas, >= 1. `state` must outlive the object.
  BatchSizePolicy(std::size_t batch_size, LoopState& state) : batch_size_(batch_size), state_(state) {}

  // Check and set the arguments of AdaptiveDataLoaderHelper::autoscale_batch_size. check_limits throws UsageError.
  void check_limits(std::size_t max_batch_size, const LocalBszBounds& bounds, bool accumulation) const;
  void set_limits(std::size_t max_batch_size, const LocalBszBounds& bounds, bool accumulation);
  // Adds the initial batch size and its limits to the scheduling hints.
  void report() const;

  std::size_t batch_size() const noexcept { return batch_size_; }
  std::optional<std::size_t> max_batch_size() const noexcept { return max_batch_size_; }
  const LocalBszBounds& bounds() const noexcept { return bounds_; }
  bool gradient_accumulation() const noexcept { return gradient_accumulation_; }
  // Returns whether the total may grow beyond batch_size().
  bool adaptive() const noexcept { return max_batch_size_ && *max_batch_size_ > batch_size_; }

  // Chooses a batch size for the current replicas, unless the present one is valid for them. All replicas must call it.
  void choose();
  // Returns the batch size that rank 0 proposes at a boundary; see BatchSizeChoice::propose.
  std::optional<BatchSize> propose(bool pass_ends);

  // Returns whether the chosen batch size is not in use yet.
  bool has_new_choice() const noexcept;
  // Puts the chosen batch size into use.
  void adopt_choice();
  // Save the batch size in use when a loop finishes, and restore it when that loop is skipped.
  void save_finished() noexcept;
  void restore_finished() noexcept;

  // The batch size in use: the number of samples per batch on each replica (0 before the first loop), the number of
  // batches accumulated before the last batch of a step, the number of replicas, and the number of samples per step.
  std::size_t local_bsz() const noexcept { return size_.local_bsz; }
  int accumulation_steps() const noexcept { return size_.accumulation_steps; }
  std::size_t replicas() const noexcept { return replicas_; }
  std::size_t total() const noexcept;

 private:
  BatchSizeRange range() const;

  const std::size_t batch_size_;
  LoopState& state_;
  std::optional<std::size_t> max_batch_size_;
  LocalBszBounds bounds_;
  bool gradient_accumulation_ = false;
  BatchSize size_;
  std::size_t replicas_ = 1;
};

}  // namespace adaptdl::internal
