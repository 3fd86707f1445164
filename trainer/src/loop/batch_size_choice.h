// The batch size of the training loader, and the schedule on which it is reconsidered.
//
// Rank 0 fits the goodput model to its measurements repeatedly, first soon after the start and then at growing
// intervals, and chooses the batch size with the best goodput. A fit begins at one step boundary. At the next boundary,
// where a checkpoint may be saved, rank 0 reads the result and submits its choice to all replicas. The choice takes
// effect at the boundary after that. All of this state is part of the checkpoint, so a resumed job makes the same
// decisions as if it had never stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <utility>

#include "adaptdl/goodput.h"

namespace adaptdl::internal {

// Returns a / b, rounded up.
inline std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

struct BatchSize {
  std::size_t local_bsz = 0;  // samples per batch on each replica
  int accumulation_steps = 0;
  bool operator==(const BatchSize&) const = default;
};

// The permitted batch sizes: a total of at least `batch_size`, within `limits`.
struct BatchSizeRange {
  std::size_t batch_size = 1;
  goodput::Limits limits;
};

// Divides `batch_size` evenly among the replicas, rounded up, and each share into as few batches as the upper local
// bound allows. The lower bound may increase the batch size. REQUIRES that each share is within the upper bound if
// accumulation is not allowed.
BatchSize even_batch_size(const BatchSizeRange& range, int replicas);

// Returns whether the range permits this batch size on `replicas` replicas.
bool allows(const BatchSizeRange& range, int replicas, const BatchSize& size);

// Returns the batch size with the best goodput. `present`, the current batch size if there is one, is kept unless the
// best batch size is more than 5% better.
BatchSize best_batch_size(const goodput::GoodputFunction& goodput, const BatchSizeRange& range, int nodes, int replicas,
                          const std::optional<BatchSize>& present);

// A function that decides instead of the goodput function. It is called on rank 0 at each boundary of the training
// loop, with the number of steps taken so far, and returns the local batch size and the accumulation steps to use from
// the next step on, or nullopt to keep the current ones. An empty function restores decisions by goodput. This is for
// tests that replay decisions.
using BatchSizeDecider = std::function<std::optional<std::pair<std::size_t, int>>(std::uint64_t step)>;
void set_batch_size_decider(BatchSizeDecider decider);

// The batch size chosen for one loader, and the schedule of the decisions. It is part of the loader's state.
class BatchSizeChoice {
 public:
  // Returns the batch size that applies from the next synchronization on; its local_bsz is 0 before the first choice.
  const BatchSize& size() const noexcept { return size_; }
  // Returns the number of replicas for which the batch size was chosen.
  int replicas() const noexcept { return replicas_; }
  // Returns whether the chosen batch size is valid for this range and number of replicas.
  bool holds(const BatchSizeRange& range, int replicas) const;

  // Chooses a batch size for a new number of replicas, by the goodput function if there is one.
  BatchSize choose_again(const BatchSizeRange& range, int nodes, int replicas) const;
  // Adopts the batch size that rank 0 chose, and restarts the schedule of fits.
  void begin(const BatchSize& size, int replicas);
  void change(const BatchSize& size) { size_ = size; }

  // Waits for a fit in progress and adopts its result. Called on rank 0 at each boundary of any loop, before a
  // checkpoint is saved there.
  void take_fit();
  // Returns the batch size that rank 0 proposes from the next boundary on, or nullopt to keep the current one. Called
  // on rank 0 at each boundary of the loader's loop, after a checkpoint is saved there. `range`: nullopt if the batch
  // size must not change. `pass_ends`: whether this is the last step of a pass.
  std::optional<BatchSize> propose(const std::optional<BatchSizeRange>& range, int nodes, bool pass_ends);

  nlohmann::json save() const;
  // Throws nlohmann::json::exception.
  void load(const nlohmann::json& saved);

 private:
  bool fit_due(double now) const;

  BatchSize size_;
  int replicas_ = 0;
  bool by_goodput_ = false;      // whether the goodput function has chosen or confirmed size_
  bool decide_ = false;          // whether there is a new fit on which no decision is based yet
  std::uint64_t steps_ = 0;      // number of boundaries of this loop so far
  std::uint64_t fit_steps_ = 0;  // number of steps since the last fit
  int fits_ = 0;                 // number of fits with this number of replicas
  // Times by metrics::now(), unset before the first step and before the first report, respectively.
  std::optional<double> last_fit_, last_hints_;
};

}  // namespace adaptdl::internal
